-- Where the tokens of prompts came from; the four sources add up to the prompt.
SELECT
    wall_ns // ($bucket_s * 1000000000::BIGINT) * ($bucket_s * 1000000000::BIGINT) AS time,
    count(*) AS requests,
    count(*) FILTER (resume_at > 0) AS hits,
    sum(prompt)::BIGINT AS prompt_tokens,
    sum(resume_at::BIGINT - loaded - kept)::BIGINT AS device_tokens,
    sum(loaded)::BIGINT AS tier_tokens,
    sum(kept)::BIGINT AS suspended_tokens,
    sum(prompt::BIGINT - resume_at)::BIGINT AS computed_tokens,
    sum(reused::BIGINT - resume_at)::BIGINT AS recomputed_tokens,
    sum(resume_at) / nullif(sum(prompt), 0) AS hit_ratio
FROM events
GROUP BY time
ORDER BY time
