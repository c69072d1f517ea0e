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
        hits: requests that reused any of their prompt.
        recomputed_tokens: of their prompts, that were here or stored and were computed again, since
            the state at their end was not.
        evictions: blocks and checkpoints evicted.
        loads: from the tier below.
        load_bytes: of those loads.
        stored_bytes: of all objects written to the tier below.
        stored_tokens: of the blocks among them.
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
    hits: int
    recomputed_tokens: int
    evictions: int
    loads: int
    load_bytes: int
    stored_bytes: int
    stored_tokens: int
    events: int
    log_bytes: int
    run_requests: int
    manager_cpu_us_per_request: float | None

    @property
    def stored_bytes_per_token(self) -> float | None:
        """Bytes written to the tier below for each token of the blocks there."""
        return self.stored_bytes / self.stored_tokens if self.stored_tokens else None

    @property
    def recomputed_tokens_per_hit(self) -> float | None:
        """Tokens that a request that hit computed again for want of state."""
        return self.recomputed_tokens / self.hits if self.hits else None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self) | {
            "stored_bytes_per_token": self.stored_bytes_per_token,
            "recomputed_tokens_per_hit": self.recomputed_tokens_per_hit,
        }
