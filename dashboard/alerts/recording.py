"""Recording rules: what alerts and dashboards would otherwise compute again and again.

Names are ``level:metric:operation``; the level says which labels are left.
"""

from typing import Final, NamedTuple

__all__ = ["RECORDING_RULES", "Recording", "slow_loads", "validation_failures"]

SLO_WINDOWS: Final = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
LOAD_TARGET_SECONDS: Final = 2.0


class Recording(NamedTuple):
    """One recording rule.

    Attributes:
        name: of the series it records.
        expression: PromQL.
    """

    name: str
    expression: str


def validation_failures(window: str) -> str:
    """Name of the share of failed validations per request, over a window."""
    return f"instance:kvcache_validation_failures:ratio_rate{window}"


def slow_loads(window: str) -> str:
    """Name of the share of loads that took longer than their target, over a window."""
    return f"instance:kvcache_slow_loads:ratio_rate{window}"


def _by_instance(expression: str) -> str:
    return f"sum by (job, instance) ({expression})"


def _validation_failures(window: str) -> Recording:
    failed = _by_instance(f"rate(kvcache_validation_failures_total[{window}])")
    begun = _by_instance(f"rate(kvcache_requests_total[{window}])")
    return Recording(validation_failures(window), f"{failed} / ({begun} > 0)")


def _slow_loads(window: str) -> Recording:
    bucket = f'kvcache_load_duration_seconds_bucket{{le="{LOAD_TARGET_SECONDS}"}}'
    fast = _by_instance(f"rate({bucket}[{window}])")
    all_loads = _by_instance(f"rate(kvcache_load_duration_seconds_count[{window}])")
    return Recording(slow_loads(window), f"1 - {fast} / ({all_loads} > 0)")


def _hit_ratio(window: str) -> Recording:
    hit = _by_instance(f"rate(kvcache_hit_tokens_total[{window}])")
    asked = _by_instance(f'rate(kvcache_lookup_tokens_total{{source="device"}}[{window}])')
    return Recording(f"instance:kvcache_hit_tokens:ratio_rate{window}", f"{hit} / ({asked} > 0)")


_AVAILABLE: Final = Recording(
    "instance_pool:kvcache_available_pages:ratio",
    "sum by (job, instance, pool, kind) "
    '(kvcache_pool_pages{state=~"free|sealed_idle"}) '
    "/ sum by (job, instance, pool, kind) (kvcache_pool_capacity_pages)",
)
_REQUESTS: Final = Recording(
    "instance:kvcache_requests:rate5m", _by_instance("rate(kvcache_requests_total[5m])")
)
_SCRUB_PERIOD: Final = Recording(
    "instance:kvcache_scrub_period_seconds:rate1h",
    "sum by (job, instance) ("
    'sum by (job, instance, pool) (kvcache_pool_pages{state=~"sealed_idle|sealed_pinned"}) '
    "* on (job, instance, pool) group_left () kvcache_page_size_bytes) "
    "/ (sum by (job, instance) (rate(kvcache_scrubbed_bytes_total[1h])) > 0)",
)

RECORDING_RULES: Final = (
    *(_validation_failures(window) for window in SLO_WINDOWS),
    *(_slow_loads(window) for window in SLO_WINDOWS),
    *(_hit_ratio(window) for window in ("5m", "15m")),
    _AVAILABLE,
    _REQUESTS,
    _SCRUB_PERIOD,
)
"""Every recording rule."""
