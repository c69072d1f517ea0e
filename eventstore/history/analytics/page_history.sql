-- Every event of one page, in order.
SELECT
    events.wall_ns AS time,
    events.seqno::BIGINT AS seqno,
    groups.name AS "group",
    coalesce(types.name, events.type::VARCHAR) AS type,
    coalesce(states.name, events.state::VARCHAR) AS state,
    events.generation::BIGINT AS generation,
    coalesce(reasons.name, events.reason::VARCHAR) AS reason,
    events."references"::BIGINT AS "references"
FROM events
LEFT JOIN groups ON groups.code = events."group"
LEFT JOIN types ON types.code = events.type
LEFT JOIN states ON states.code = events.state
LEFT JOIN reasons ON reasons.code = events.reason
WHERE events.page = $page AND ($group = '' OR groups.name = $group)
ORDER BY events.seqno
