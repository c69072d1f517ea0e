-- What validation refused, and objects of lower tiers that were none, by time and cause.
WITH failed AS (
    SELECT
        wall_ns // ($bucket_s * 1000000000::BIGINT) * ($bucket_s * 1000000000::BIGINT) AS time,
        CASE WHEN types.name = 'OBJECT_FAILED' THEN 'object'
             ELSE coalesce(layers.name, events.layer::VARCHAR) END AS layer,
        coalesce(reasons.name, events.reason::VARCHAR) AS reason,
        CASE WHEN types.name = 'OBJECT_FAILED' THEN 'DISK' ELSE groups.kind END AS kind,
        groups.name AS "group",
        events.tier AS tier
    FROM events
    JOIN types ON types.code = events.type
    LEFT JOIN layers ON layers.code = events.layer
    LEFT JOIN reasons ON reasons.code = events.reason
    LEFT JOIN groups ON groups.code = events."group"
)
SELECT time, layer, reason, kind, "group", tier, count(*) AS failures
FROM failed
GROUP BY ALL
ORDER BY ALL
