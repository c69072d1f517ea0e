"""What a tally sums besides events by type: names, and comparisons of pages."""

from dataclasses import dataclass
from typing import Final

__all__ = ["TOTALS", "NumericSample"]

TOTALS: Final = {
    "requests": "requests begun",
    "hits": "requests that reused more than they had computed themselves",
    "prompt_tokens": "tokens of their prompts",
    "device_tokens": "prompt tokens found on the device",
    "tier_tokens": "prompt tokens that a lower tier gave",
    "suspended_tokens": "prompt tokens that a request had computed itself before it was suspended",
    "computed_tokens": "prompt tokens computed; the four sources sum to the prompt tokens",
    "device_query_tokens": "prompt tokens looked up on the device: all but the suspended ones",
    "tier_query_tokens": "prompt tokens looked up in lower tiers: those that the device lacked",
    "recomputed_tokens": "tokens whose pages were reused and that were computed for their state",
    "limited_tokens": "tokens that were here and not reused, since a group or rank had less",
    "evicted_blocks": "blocks freed to make room",
    "evicted_checkpoints": "checkpoints freed to make room",
    "loads": "loads ended",
    "load_objects": "objects they brought",
    "load_bytes": "bytes they brought",
    "load_micros": "how long they took, in microseconds",
    "spills": "spills ended",
    "spill_objects": "objects they wrote",
    "spill_bytes": "bytes they wrote",
    "spill_micros": "how long they took, in microseconds",
    "scrubbed_pages": "sealed pages checksummed in turn",
    "scrubbed_bytes": "their bytes",
    "scrub_bad_pages": "pages of them whose bytes differed",
    "starts": "times that an engine opened the log",
    "crashes": "starts that found the engine before had not closed it",
    "kept_pages": "pages that recoveries after a start kept",
    "lost_pages": "pages that they lost",
    "replayed_events": "events that engines replayed when they opened the log",
    "replay_micros": "how long that took, in microseconds",
    "numeric_samples": "sealed pages computed again and compared",
    "numeric_drifts": "pages of them that differed by more than the tolerance",
}
"""Names of the totals, and what they sum."""


@dataclass
class NumericSample:
    """What comparisons of one group's pages with values computed again said, for one layer.

    Attributes:
        samples: pages compared.
        drifted: pages of them beyond the tolerance.
        max_abs: the largest difference in the last one.
        cosine: of stored and computed values in the last one.
        tolerance: of the last one.
    """

    samples: int = 0
    drifted: int = 0
    max_abs: float = 0.0
    cosine: float = 1.0
    tolerance: float = 0.0
