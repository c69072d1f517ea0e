-- The state of every page after the last durable event.
WITH told AS (
    SELECT
        "group", page,
        arg_max(state, seqno) AS state,
        arg_max(generation, seqno) AS generation,
        max(seqno) AS seqno,
        arg_max(wall_ns, seqno) AS wall_ns
    FROM events
    GROUP BY "group", page
)
SELECT
    groups.name AS "group",
    groups.kind,
    pages_at_start.page,
    states.name AS state,
    coalesce(told.generation, pages_at_start.generation)::BIGINT AS generation,
    coalesce(told.seqno, pages_at_start.seqno)::BIGINT AS seqno,
    told.wall_ns AS time
FROM pages_at_start
LEFT JOIN told USING ("group", page)
JOIN groups ON groups.code = pages_at_start."group"
JOIN states ON states.code = coalesce(told.state, pages_at_start.state)
WHERE ($group = '' OR groups.name = $group)
    AND ($state = '' OR states.name = upper($state))
ORDER BY pages_at_start."group", pages_at_start.page
