-- The three kinds of drift: pages computed again and compared, pages checksummed in turn, and
-- slices of the tables whose digest was logged, against readers that reported a difference.
SELECT
    wall_ns // ($bucket_s * 1000000000::BIGINT) * ($bucket_s * 1000000000::BIGINT) AS time,
    CASE WHEN types.name = 'NUMERIC_DRIFT' THEN 'numeric'
         WHEN types.name = 'SCRUBBED' THEN 'byte'
         ELSE 'projection' END AS drift,
    CASE WHEN types.name = 'NUMERIC_DRIFT' THEN groups.kind ELSE '' END AS kind,
    CASE WHEN types.name = 'NUMERIC_DRIFT' THEN groups.name ELSE '' END AS "group",
    CASE WHEN types.name = 'NUMERIC_DRIFT' THEN layer::BIGINT END AS layer,
    sum(CASE types.name WHEN 'SCRUBBED' THEN events.pages WHEN 'DIVERGENCE_REPORTED' THEN 0 ELSE 1 END
    )::BIGINT AS checked,
    sum(CASE types.name WHEN 'SCRUBBED' THEN events.bad WHEN 'DIVERGENCE_REPORTED' THEN 1
             WHEN 'NUMERIC_DRIFT' THEN (reasons.name = 'DRIFTED')::INTEGER ELSE 0 END
    )::BIGINT AS drifted,
    max(max_abs) FILTER (types.name = 'NUMERIC_DRIFT') AS max_abs,
    min(cosine) FILTER (types.name = 'NUMERIC_DRIFT') AS cosine
FROM events
JOIN types ON types.code = events.type
LEFT JOIN reasons ON reasons.code = events.reason
LEFT JOIN groups ON groups.code = events."group"
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 4, 5
