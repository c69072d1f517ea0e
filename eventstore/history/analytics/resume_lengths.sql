-- How far requests resumed, and how far pages were reused, in steps of powers of two.
WITH lengths AS (
    SELECT resume_at AS tokens, source, 1 AS resumes, 0 AS hits FROM events
    UNION ALL
    SELECT reused AS tokens, source, 0 AS resumes, 1 AS hits FROM events
),
steps AS (
    SELECT
        CASE WHEN tokens = 0 THEN 0 ELSE 1 << floor(log2(tokens))::INTEGER END AS at_least,
        source, resumes, hits
    FROM lengths
)
SELECT
    at_least::BIGINT AS at_least,
    greatest(1, 2 * at_least)::BIGINT AS below,
    coalesce(sources.name, steps.source::VARCHAR) AS source,
    sum(resumes)::BIGINT AS resumes,
    sum(hits)::BIGINT AS hits
FROM steps
LEFT JOIN sources ON sources.code = steps.source
GROUP BY at_least, source, sources.name
ORDER BY at_least, source
