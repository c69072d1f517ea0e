-- Pages that were evicted, and how old they were: the time since their sealing.
WITH lives AS (
    SELECT
        wall_ns, "group", type, reason,
        last_value(CASE WHEN type = sealed.code THEN wall_ns END IGNORE NULLS) OVER (
            PARTITION BY "group", page ORDER BY seqno
        ) AS sealed_ns
    FROM events
    CROSS JOIN (SELECT code FROM types WHERE name = 'PAGE_SEALED') AS sealed
)
SELECT
    wall_ns // ($bucket_s * 1000000000::BIGINT) * ($bucket_s * 1000000000::BIGINT) AS time,
    groups.name AS "group",
    groups.kind,
    count(*) AS pages,
    (count(*) * groups.page_bytes)::BIGINT AS bytes,
    quantile_cont((wall_ns - sealed_ns) / 1e9, 0.5) AS age_p50,
    quantile_cont((wall_ns - sealed_ns) / 1e9, 0.9) AS age_p90,
    max((wall_ns - sealed_ns) / 1e9) AS age_max
FROM lives
JOIN types ON types.code = lives.type
JOIN reasons ON reasons.code = lives.reason
JOIN groups ON groups.code = lives."group"
WHERE types.name = 'PAGE_FREED' AND reasons.name = 'EVICTED'
GROUP BY time, groups.code, groups.name, groups.kind, groups.page_bytes
ORDER BY time, groups.code
