"""Configuration of a cache manager: how much memory, for whom, and how hits are checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal

from kvstrata.core.admission import AdmissionConfig
from kvstrata.core.arena import ArenaParams
from kvstrata.core.errors import ConfigError
from kvstrata.core.layout import CacheLayout
from kvstrata.core.planner import Rates
from kvstrata.core.words import (
    MAX_IMAGES,
)
from kvstrata.eventstore.log.config import LogConfig
from kvstrata.tiers.config import SPILL_LEASES, TiersConfig

__all__ = ["CacheConfig"]


@dataclass(frozen=True)
class CacheConfig:
    """Sizes and policies of one manager.

    Give either ``budget_bytes`` or ``slots``.

    Attributes:
        budget_bytes: bytes of all pools together (a GB is 1e9).
        slots: pages of each group by name, scratch page included; overrides the budget.
        checkpoint_share: part of the budget, after the sequences' own images, kept for
            checkpoints.
        max_sequences: running sequences at once.
        max_leases: leases held outside sequences at once.
        max_tokens_per_sequence: longest sequence, in tokens.
        images_per_sequence: state images each sequence owns; two allow one step larger than the
            layout's rollback_tokens in flight.
        verify_hits: ``always`` checksums every page of a hit before it is adopted; ``sampled``
            the checkpoint and a share of the blocks, in turn; ``never`` trusts the bytes.
        sample_share: that share.
        checkpoint_every: tokens between checkpoints taken besides those at ends and branch points;
            a multiple of the block, 0 for none.
        rates: what the planner believes of the machine until it has observed better.
        admission: limits of what may begin; None lets everybody in.
        log: settings of the event log.
        tiers: where prefixes live below the device; None for nowhere. A policy of checkpoints at
            every block, or every so many tokens, sets ``checkpoint_every`` where that is 0.
        digest_bytes_per_s: of its own tables that a manager with a log digests, in turn, so that a
            reader can compare its own; 0 for none. A whole turn takes tables' bytes / this.
        scrub_bytes_per_s: of sealed pages that a manager with pools checksums, in turn; 0 for none.
        stored_keys: keys of objects in lower tiers that the tables have room for; None for what
            ``tiers`` says. A directory made with tiers is opened without them by naming it.
    """

    budget_bytes: int | None = None
    slots: Mapping[str, int] | None = None
    checkpoint_share: float = 0.25
    max_sequences: int = 64
    max_leases: int = 64
    max_tokens_per_sequence: int = 131_072
    images_per_sequence: int = 2
    verify_hits: Literal["always", "sampled", "never"] = "always"
    sample_share: float = 0.0625
    checkpoint_every: int = 0
    rates: Rates | None = None
    admission: AdmissionConfig | None = field(default_factory=AdmissionConfig)
    log: LogConfig = field(default_factory=LogConfig)
    tiers: TiersConfig | None = None
    stored_keys: int | None = None
    digest_bytes_per_s: int = 4 << 20
    scrub_bytes_per_s: int = 0

    def __post_init__(self) -> None:
        self._check_types()
        if (self.budget_bytes is None) == (self.slots is None):
            raise ConfigError("expected either budget_bytes or slots, found both or neither")
        if not 0.0 <= self.checkpoint_share < 1.0:
            raise ConfigError(
                f"checkpoint_share: expected 0 <= share < 1, found {self.checkpoint_share}"
            )
        if self.max_tokens_per_sequence < 1:
            raise ConfigError(
                "max_tokens_per_sequence: expected at least 1, found "
                f"{self.max_tokens_per_sequence}"
            )
        if not 2 <= self.images_per_sequence <= MAX_IMAGES:
            raise ConfigError(
                f"images_per_sequence: expected 2 to {MAX_IMAGES}, found {self.images_per_sequence}"
            )
        if self.verify_hits not in ("always", "sampled", "never"):
            raise ConfigError(
                f"verify_hits: expected 'always', 'sampled' or 'never', found {self.verify_hits!r}"
            )
        if not 0.0 < self.sample_share <= 1.0:
            raise ConfigError(f"sample_share: expected 0 < share <= 1, found {self.sample_share}")
        if self.checkpoint_every < 0:
            raise ConfigError(
                f"checkpoint_every: expected at least 0, found {self.checkpoint_every}"
            )

    def _check_types(self) -> None:
        whole: dict[str, Any] = {
            "max_sequences": self.max_sequences,
            "max_leases": self.max_leases,
            "max_tokens_per_sequence": self.max_tokens_per_sequence,
            "images_per_sequence": self.images_per_sequence,
            "checkpoint_every": self.checkpoint_every,
            "digest_bytes_per_s": self.digest_bytes_per_s,
            "scrub_bytes_per_s": self.scrub_bytes_per_s,
        }
        if self.stored_keys is not None:
            whole["stored_keys"] = self.stored_keys
        if self.budget_bytes is not None:
            whole["budget_bytes"] = self.budget_bytes
        for group, slots in (self.slots or {}).items():
            whole[f"slots of {group}"] = slots
        for name, value in whole.items():
            if not isinstance(value, Integral):
                raise ConfigError(f"{name}: expected a whole number, found {value!r}")
        for name in ("digest_bytes_per_s", "scrub_bytes_per_s"):
            if whole[name] < 0:
                raise ConfigError(f"{name}: expected at least 0, found {whole[name]}")
        share: Any = self.checkpoint_share
        if not isinstance(share, int | float):
            raise ConfigError(f"checkpoint_share: expected a number, found {share!r}")

    def arena_params(self, layout: CacheLayout) -> ArenaParams:
        """Sizes of the manager's tables for a layout.

        Raises:
            ConfigError: the memory does not suffice for one sequence, or ring for one call.
        """
        slots = self._slots_of_budget(layout) if self.slots is None else dict(self.slots)
        blocks = -(-self.max_tokens_per_sequence // layout.block_tokens)
        self.checkpoints_every(layout)
        # Each load in flight owns its pages as a sequence does.
        loads = 0 if self.tiers is None else self.tiers.max_loads
        params = ArenaParams(
            slots=slots,
            max_sequences=self.max_sequences + loads,
            max_leases=self.max_leases + (0 if self.tiers is None else SPILL_LEASES),
            max_blocks_per_sequence=blocks,
            images_per_sequence=self.images_per_sequence,
            stored_keys=self._stored_keys(),
        )
        params.check(layout)
        # What a call emits for each sequence beside whole blocks; see core.room.
        captures = 3 * len(layout.state_groups) * (layout.rollback_tokens // layout.block_tokens)
        least = 4 * (self.max_sequences + 2) * (12 * (len(layout.groups) + 1) + captures)
        if self.log.ring_events < least:
            raise ConfigError(
                f"ring_events: expected at least {least} for {self.max_sequences} sequences of "
                f"{len(layout.groups)} groups, found {self.log.ring_events}"
            )
        return params

    def _stored_keys(self) -> int:
        if self.stored_keys is not None:
            return self.stored_keys
        return 0 if self.tiers is None else self.tiers.objects

    def checkpoints_every(self, layout: CacheLayout) -> int:
        """Tokens between checkpoints taken besides those at ends and branch points, 0 for none.

        Raises:
            ConfigError: no multiple of the layout's block.
        """
        every, name = self.checkpoint_every, "checkpoint_every"
        if not every and self.tiers is not None:
            policy = self.tiers.checkpoint_policy()
            every, name = policy.every_tokens, "tiers.checkpoints"
            if policy.kind == "full":
                every = layout.block_tokens
        if every % layout.block_tokens:
            raise ConfigError(
                f"{name}: expected a multiple of the block of {layout.block_tokens} tokens, "
                f"found {every}"
            )
        return every

    def _slots_of_budget(self, layout: CacheLayout) -> dict[str, int]:
        budget = self.budget_bytes or 0
        scratch = sum(group.page_bytes for group in layout.groups)
        private = self.max_sequences * self.images_per_sequence if layout.state_groups else 0
        left = budget - scratch - private * layout.image_bytes
        share = self.checkpoint_share if layout.state_groups else 0.0
        blocks = int(left * (1 - share)) // layout.block_bytes
        checkpoints = int(left * share) // layout.image_bytes if layout.state_groups else 0
        if left < 0 or blocks < 1:
            least = scratch + private * layout.image_bytes + layout.block_bytes
            raise ConfigError(
                f"budget_bytes: expected at least {least:,} ({private} state images of "
                f"{layout.image_bytes:,} bytes for {self.max_sequences} sequences, and one block), "
                f"found {budget:,}; raise the budget or lower max_sequences"
            )
        history = {group.name: blocks + 1 for group in layout.history_groups}
        states = {group.name: private + checkpoints + 1 for group in layout.state_groups}
        return history | states
