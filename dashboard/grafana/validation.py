"""Validation and drift: what failed, what differs, how fast the budgets burn."""

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.models.dashboard import Dashboard

from .board import Row, make_dashboard
from .look import BAD, GOOD, WARN, query
from .shapes import lines, number

__all__ = ["validation"]

UID = "kvstrata-validation"


def validation() -> Dashboard:
    """The dashboard."""
    return make_dashboard(
        UID,
        "kvstrata / Validation and drift",
        "What failed validation and why, what drifted, and whether the objectives hold.",
        [
            Row("Objectives", [validation_budget(), recovery_budget()]),
            Row("Validation", [failures_by_layer(), failures_by_reason(), failures_by_pool()]),
            Row(
                "Withdrawn and lagging",
                [quarantined(), index_lag(), limited_hits(), topology_violations()],
            ),
            Row("Drift", [drift_by_kind(), digests(), scrubbed(), scrub_period()]),
            Row("Numeric drift", [largest_difference(), least_cosine(), numeric_samples()]),
        ],
        with_pool=True,
    )


def _budget(title: str, description: str, rule: str, limit: float, alerts: tuple[str, ...]) -> (
    timeseries.Panel
):  # fmt: skip
    windows = ("5m", "1h", "6h", "3d")
    queries = [
        query(f'instance:{rule}:ratio_rate{window}{{instance=~"$instance"}}', f"over {window}")
        for window in windows
    ]
    panel = lines(
        title,
        description,
        queries,
        "percentunit",
        limit=((None, GOOD), (limit, BAD)),
        no_value="nothing measured yet",
        alerts=alerts,
    )
    return panel.axis_soft_max(2 * limit).span(12)


def validation_budget() -> timeseries.Panel:
    return _budget(
        "Validation failures per request",
        "Share of failed validations per request over several windows; the dashed line is the "
        "objective of one in a thousand.",
        "kvcache_validation_failures",
        0.001,
        ("KVCacheValidationBurnFast", "KVCacheValidationBurnSlow"),
    )


def recovery_budget() -> timeseries.Panel:
    return _budget(
        "Recoveries slower than 2 s",
        "Share of loads from lower tiers that took longer than their target; the dashed line is "
        "the objective of one in a hundred.",
        "kvcache_slow_loads",
        0.01,
        ("KVCacheRecoveryTimeBurnFast", "KVCacheRecoveryTimeBurnSlow"),
    )


def _failures(title: str, description: str, label: str) -> timeseries.Panel:
    return lines(
        title,
        description,
        [
            query(
                f"sum by ({label}) (rate(kvcache_validation_failures_total"
                '{instance=~"$instance",pool=~"$pool"}[$__rate_interval])) > 0',
                f"{{{{{label}}}}}",
            )
        ],
        "ops",
        no_value="none failed",
        alerts=("KVCacheValidationBurnFast",),
    )


def failures_by_layer() -> timeseries.Panel:
    return _failures(
        "Failures by layer",
        "Bytes, block, kernel ABI, intersection of groups and ranks, alignment: the layer tells "
        "who is at fault.",
        "layer",
    )


def failures_by_reason() -> timeseries.Panel:
    return _failures(
        "Failures by reason", "Each reason is explained in docs/validation.md.", "reason"
    )


def failures_by_pool() -> timeseries.Panel:
    return _failures(
        "Failures by pool", "One pool alone points to its kernel or its memory.", "pool"
    )


def quarantined() -> timeseries.Panel:
    return lines(
        "Pages in quarantine",
        "Withdrawn and not freed yet, since somebody still reads them. They go with their last "
        "lease.",
        [
            query(
                "sum by (pool) (kvcache_pool_pages"
                '{instance=~"$instance",pool=~"$pool",state="quarantined"})',
                "{{pool}}",
            )
        ],
        alerts=("KVCacheByteDrift",),
    ).span(6)


def index_lag() -> timeseries.Panel:
    return lines(
        "Index pages that lag",
        "Sealed pages of an index that no hit adopts: written after their sealing, or made for "
        "another compression mapping.",
        [
            query(
                'sum by (pool) (kvcache_index_lag_pages{instance=~"$instance",pool=~"$pool",'
                'kind="indexer"})',
                "{{pool}}",
            )
        ],
        no_value="this layout has no index",
        alerts=("KVCacheIndexLag",),
    ).span(6)


def limited_hits() -> timeseries.Panel:
    return lines(
        "Hits cut short",
        "Hits that reuse less than what is here, since another group or rank has less, and the "
        "tokens that this costs, a second.",
        [
            query(
                "sum by (reason) "
                '(rate(kvcache_limited_hits_total{instance=~"$instance"}[$__rate_interval]))',
                "{{reason}}",
            ),
            query(
                'sum(rate(kvcache_limited_tokens_total{instance=~"$instance"}[$__rate_interval]))',
                "tokens not reused",
            ),
        ],
        "ops",
    ).span(6)


def topology_violations() -> timeseries.Panel:
    return lines(
        "Topology violations",
        "Times that a pool was found elsewhere than captured graphs expect. The manager stops at "
        "the first.",
        [query('sum(kvcache_topology_violations_total{instance=~"$instance"})', "violations")],
        alerts=("KVCacheTopologyViolated",),
    ).span(6)


def drift_by_kind() -> timeseries.Panel:
    return lines(
        "Drift found",
        "Differences found within five minutes, by kind. Anything but 0 is a fault.",
        [
            query(
                'sum by (drift) (increase(kvcache_drift_total{instance=~"$instance"}[5m]))',
                "{{drift}}",
            )
        ],
        alerts=("KVCacheProjectionDiverged", "KVCacheByteDrift", "KVCacheNumericDrift"),
    ).span(6)


def digests() -> timeseries.Panel:
    return lines(
        "Digests compared",
        "Digests of the engine's tables that the follower compared with its own, a second. None at "
        "all means that nothing guards the tables.",
        [
            query(
                "sum by (result) "
                '(rate(kvcache_projection_digests_total{instance=~"$instance"}[$__rate_interval]))',
                "{{result}}",
            )
        ],
        "ops",
        colours={"equal": GOOD, "different": BAD},
        alerts=("KVCacheProjectionDiverged",),
    ).span(6)


def scrubbed() -> timeseries.Panel:
    return lines(
        "Scrubbed",
        "Bytes of sealed pages checksummed in the background, a second.",
        [
            query(
                'sum(rate(kvcache_scrubbed_bytes_total{instance=~"$instance"}[$__rate_interval]))',
                "checksummed",
            )
        ],
        "Bps",
        no_value="no scrubbing",
    ).span(6)


def scrub_period() -> stat.Panel:
    return number(
        "Scrub period",
        "How long one round through all sealed pages takes at the pace of the last hour: a changed "
        "byte is found within it.",
        'max(instance:kvcache_scrub_period_seconds:rate1h{instance=~"$instance"})',
        unit="s",
        steps=((None, GOOD), (86_400, WARN)),
        no_value="no scrubbing",
    ).height(8).span(6)  # fmt: skip


_SAMPLED = '{instance=~"$instance",pool=~"$pool"}'


def largest_difference() -> timeseries.Panel:
    return lines(
        "Greatest difference",
        "Greatest absolute difference between stored and computed values in the last samples, by "
        "kind and layer of the model.",
        [
            query(
                f"max by (kind, model_layer) (kvcache_numeric_max_abs_difference{_SAMPLED})",
                "{{kind}} {{model_layer}}",
            )
        ],
        no_value="no samples",
        alerts=("KVCacheNumericDrift",),
    )


def least_cosine() -> timeseries.Panel:
    return lines(
        "Least cosine",
        "Cosine between stored and computed values in the last samples, by kind and layer of the "
        "model; 1 is the same direction.",
        [
            query(
                f"min by (kind, model_layer) (kvcache_numeric_cosine_similarity{_SAMPLED})",
                "{{kind}} {{model_layer}}",
            )
        ],
        no_value="no samples",
        alerts=("KVCacheNumericDrift",),
    )


def numeric_samples() -> timeseries.Panel:
    return lines(
        "Blocks computed again",
        "Samples so far, by whether they were within their tolerance.",
        [query(f"sum by (result) (kvcache_numeric_samples_total{_SAMPLED})", "{{result}}")],
        colours={"equal": GOOD, "different": BAD},
        no_value="no samples",
    )
