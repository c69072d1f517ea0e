-- What admission said, and how long requests waited, or were to wait.
SELECT
    wall_ns // ($bucket_s * 1000000000::BIGINT) * ($bucket_s * 1000000000::BIGINT) AS time,
    lower(replace(types.name, 'ADMISSION_', '')) AS decision,
    coalesce(reasons.name, events.reason::VARCHAR) AS reason,
    count(*) AS decisions,
    count(DISTINCT ticket) AS requests,
    quantile_cont(wait_us / 1e6, 0.5) AS wait_p50,
    quantile_cont(wait_us / 1e6, 0.9) AS wait_p90,
    max(wait_us) / 1e6 AS wait_max,
    max(waiting)::BIGINT AS waiting,
    sum(load_bytes)::BIGINT AS load_bytes
FROM events
JOIN types ON types.code = events.type
LEFT JOIN reasons ON reasons.code = events.reason
GROUP BY time, types.name, events.reason, reasons.name
ORDER BY time, decision, reason
