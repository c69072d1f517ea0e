-- Recoveries, each with what it kept and lost, and how long it took.
WITH steps AS (
    SELECT
        seqno, wall_ns, types.name AS type, bytes_trusted, kept, lost,
        lead(types.name) OVER (ORDER BY seqno) AS next_type,
        lead(wall_ns) OVER (ORDER BY seqno) AS next_ns,
        lead(kept) OVER (ORDER BY seqno) AS next_kept,
        lead(lost) OVER (ORDER BY seqno) AS next_lost
    FROM events
    JOIN types ON types.code = events.type
)
SELECT
    wall_ns AS time,
    seqno::BIGINT AS seqno,
    bytes_trusted = 1 AS bytes_trusted,
    CASE WHEN next_type = 'RECOVERY_ENDED' THEN next_kept END::BIGINT AS kept,
    CASE WHEN next_type = 'RECOVERY_ENDED' THEN next_lost END::BIGINT AS lost,
    CASE WHEN next_type = 'RECOVERY_ENDED' THEN (next_ns - wall_ns) / 1e9 END AS duration
FROM steps
WHERE type = 'RECOVERY_BEGUN'
ORDER BY seqno
