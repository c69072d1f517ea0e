-- Loads from lower tiers and spills to them, as they ended.
SELECT
    wall_ns // ($bucket_s * 1000000000::BIGINT) * ($bucket_s * 1000000000::BIGINT) AS time,
    CASE types.name WHEN 'LOAD_ENDED' THEN 'load' ELSE 'spill' END AS direction,
    coalesce(reasons.name, events.reason::VARCHAR) AS reason,
    count(*) AS transfers,
    sum(objects)::BIGINT AS objects,
    sum(num_bytes)::BIGINT AS bytes,
    quantile_cont(micros / 1e6, 0.5) AS duration_p50,
    quantile_cont(micros / 1e6, 0.9) AS duration_p90,
    max(micros) / 1e6 AS duration_max
FROM events
JOIN types ON types.code = events.type
LEFT JOIN reasons ON reasons.code = events.reason
GROUP BY time, types.name, events.reason, reasons.name
ORDER BY time, direction, reason
