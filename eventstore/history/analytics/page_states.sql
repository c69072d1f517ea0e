-- Pages by state at the end of each stretch of time. A page's state before an event is that of the
-- event before it, or of where the log begins; each event moves one page from one to the other.
WITH bucket AS (
    SELECT
        $bucket_s * 1000000000::BIGINT AS width,
        since_ns,
        since_ns // ($bucket_s * 1000000000::BIGINT) * ($bucket_s * 1000000000::BIGINT) AS first,
        last_ns // ($bucket_s * 1000000000::BIGINT) * ($bucket_s * 1000000000::BIGINT) AS last
    FROM bounds
),
changes AS (
    SELECT
        CASE WHEN events.wall_ns < bucket.since_ns THEN bucket.first - bucket.width
             ELSE events.wall_ns // bucket.width * bucket.width END AS time,
        events."group" AS code,
        events.state AS after,
        coalesce(
            lag(events.state) OVER (
                PARTITION BY events."group", events.page ORDER BY events.seqno
            ),
            pages_at_start.state
        ) AS before
    FROM events
    JOIN pages_at_start USING ("group", page)
    CROSS JOIN bucket
),
deltas AS (
    SELECT time, code, after AS state, 1 AS pages FROM changes
    UNION ALL
    SELECT time, code, before AS state, -1 AS pages FROM changes
    UNION ALL
    SELECT bucket.first - bucket.width AS time, "group" AS code, state, count(*) AS pages
    FROM pages_at_start CROSS JOIN bucket
    GROUP BY ALL
),
moved AS (
    SELECT time, code, state, sum(pages) AS pages FROM deltas GROUP BY ALL
),
grid AS (
    SELECT moments.time, seen.code, seen.state
    FROM (
        SELECT unnest(generate_series(first - width, last, width)) AS time FROM bucket
    ) AS moments
    CROSS JOIN (SELECT DISTINCT code, state FROM moved) AS seen
),
counted AS (
    SELECT
        grid.time, grid.code, grid.state,
        sum(coalesce(moved.pages, 0)) OVER (
            PARTITION BY grid.code, grid.state ORDER BY grid.time
        ) AS pages
    FROM grid
    LEFT JOIN moved USING (time, code, state)
)
SELECT
    counted.time,
    groups.name AS "group",
    groups.kind,
    states.name AS state,
    counted.pages::BIGINT AS pages,
    (counted.pages * groups.page_bytes)::BIGINT AS bytes
FROM counted
JOIN groups ON groups.code = counted.code
JOIN states ON states.code = counted.state
CROSS JOIN bucket
WHERE counted.time >= bucket.first
    AND counted.pages > 0
    AND ($group = '' OR groups.name = $group)
ORDER BY counted.time, counted.code, counted.state
