"""What a replay came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Outcome"]


@dataclass(frozen=True)
class Outcome:
    """What a replay came to; all but ``refused`` and the last two is read off the log.

    Attributes:
        requests: that ended as they should.
        refused: that do not fit the budget, even alone.
        prompt_tokens: of those that ended.
        hit_tokens: of their prompts, whose pages were reused.
        saved_tokens: of their prompts, that were not computed: hits less what was computed again
            for state.
        evictions: blocks and checkpoints evicted.
        events: in the log.
        log_bytes: of its segments.
        run_requests: requests that ended in this run; fewer than all where it went on with a log.
        manager_cpu_us_per_request: CPU time of the calling thread in the manager, of this run; None
            where no request ended in it.
    """

    requests: int
    refused: int
    prompt_tokens: int
    hit_tokens: int
    saved_tokens: int
    evictions: int
    events: int
    log_bytes: int
    run_requests: int
    manager_cpu_us_per_request: float | None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)
