-- Events by type.
SELECT
    wall_ns // ($bucket_s * 1000000000::BIGINT) * ($bucket_s * 1000000000::BIGINT) AS time,
    coalesce(types.name, events.type::VARCHAR) AS type,
    coalesce(reasons.name, events.reason::VARCHAR) AS reason,
    count(*) AS events
FROM events
LEFT JOIN types ON types.code = events.type
LEFT JOIN reasons ON reasons.code = events.reason
GROUP BY time, events.type, types.name, events.reason, reasons.name
ORDER BY time, events.type, events.reason
