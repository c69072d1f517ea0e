"""Why a request hits as far as it does: all the reasoning of match and begin, changing nothing."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from kvstrata.core.arena import open_tables
from kvstrata.core.layout import CacheLayout
from kvstrata.core.planner import Candidate, rates_of
from kvstrata.core.ranks import RankGroup
from kvstrata.core.ring import RING_FLAG_UNLOGGED, RING_FLAGS, new_ring
from kvstrata.core.words import Arena

from .caller import CoreCaller
from .planning import Planner
from .quarantining import withdraw
from .requests import Join, Plan, Request
from .storage import Storage
from .validating import Policy, Validator, Verdict

__all__ = ["Explanation", "GroupReach", "Way", "explain"]


@dataclass(frozen=True)
class GroupReach:
    """How far one group is good for a request.

    Attributes:
        group: its name.
        kind: its kind.
        tokens: good from the start up to here (history), or a state image is here (state).
        limit: what stands behind that, for people.
    """

    group: str
    kind: str
    tokens: int
    limit: str


@dataclass(frozen=True)
class Way:
    """One candidate.

    Attributes:
        source: ``history``, ``checkpoint``, ``replay``, ``suspended`` or ``cold``.
        resume_at: position in tokens from which on it computes.
        reused_tokens: tokens whose pages it reuses.
        load_bytes: bytes it copies.
        cost_ms: by the observed rates.
        verdict: ``chosen``, ``dearer``, or why it is no hit.
    """

    source: str
    resume_at: int
    reused_tokens: int
    load_bytes: int
    cost_ms: float
    verdict: str


@dataclass(frozen=True)
class Explanation:
    """The whole reasoning about one request.

    Attributes:
        prompt_tokens: length of the prompt.
        tokens_per_s: rate of computing it reckons with.
        bytes_per_s: rate of copying.
        groups: how far each group is good.
        ways: every candidate, in the order in which they were looked at.
        source: of the way chosen.
        resume_at: where begin will resume.
        reused_tokens: what it will reuse.
        limited: why no more is reused, by name, or an empty string.
        join: the sequence that it would rather wait for, or None.
    """

    prompt_tokens: int
    tokens_per_s: int
    bytes_per_s: int
    groups: tuple[GroupReach, ...]
    ways: tuple[Way, ...]
    source: str
    resume_at: int
    reused_tokens: int
    limited: str
    join: Join | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def explain(
    layout: CacheLayout,
    arena: Arena,
    request: Request,
    storage: Storage | None = None,
    policy: Policy = "never",
    sample_share: float = 1.0,
    ranks: RankGroup | None = None,
    at: int | None = None,
    turn: int = 0,
    wait: Callable[[Request, int], int] | None = None,
    tiers: Callable[[], int] | None = None,
) -> Explanation:
    """Explain what match and begin would do with a request now.

    It does what they do, on a copy of the tables: so it says what will happen, and changes nothing.

    Args:
        layout: the layout.
        arena: the tables; not changed.
        request: the request.
        storage: the bytes, where they are looked at.
        policy: which bytes are.
        sample_share: under ``sampled``.
        ranks: the ranks that must agree.
        at: where it was suspended, if it was.
        turn: under ``sampled``, of the blocks whose bytes are looked at next.
        wait: how long admission would keep a load waiting; see :class:`.planning.Planner`.
        tiers: the lower tiers that can be read; see there.

    Returns:
        The explanation.
    """
    copy: Arena = arena.copy()
    ring = new_ring(1 << 13)
    ring[RING_FLAGS] = RING_FLAG_UNLOGGED
    call = CoreCaller(copy, ring, None, 0.0)
    planner = Planner(layout, copy, ranks, wait, tiers)
    mirror = None if storage is None else storage.over(copy)
    validator = Validator(layout, copy, mirror, policy, sample_share, turn)
    plan = planner.plan(request, at)
    groups = _reaches(layout, copy, validator, plan)
    ways: list[Way] = []
    while True:
        verdicts = [] if plan.load is not None else validator.verdicts(plan)
        ways += _ways(plan, layout.block_tokens, verdicts)
        if not verdicts:
            break
        if not withdraw(call, layout, verdicts, open_tables(copy)):
            plan = planner.cold(plan)
        else:
            plan = planner.again(plan)
    rates = rates_of(arena)
    return Explanation(
        prompt_tokens=plan.prompt_tokens,
        tokens_per_s=rates.tokens_per_s,
        bytes_per_s=rates.bytes_per_s,
        groups=groups,
        ways=tuple(ways),
        source=plan.source,
        resume_at=plan.resume_at,
        reused_tokens=plan.reused_tokens,
        limited="" if plan.limited is None else plan.limited[0].name,
    )


def _ways(plan: Plan, tokens: int, verdicts: list[Verdict]) -> list[Way]:
    def row(way: Candidate) -> Way:
        verdict = "dearer"
        if way.source == plan.source:
            verdict = "; ".join(map(str, verdicts[:3])) if verdicts else "chosen"
        reused = plan.reused_tokens if way.source == plan.source else way.num_blocks * tokens
        return Way(way.source, way.resume_at, reused, way.load_bytes, way.cost_ns / 1e6, verdict)

    # A way looked at again after another was found bad is not told twice.
    return [row(way) for way in plan.candidates if not verdicts or way.source == plan.source]


def _reaches(
    layout: CacheLayout, arena: Arena, validator: Validator, plan: Plan
) -> tuple[GroupReach, ...]:
    """How far each group is good by itself."""
    reaches = []
    history = plan.history_tokens
    wrong = validator.structure_of_history(plan)
    checkpoints = Planner(layout, arena).checkpoints(plan)
    for group in layout.groups:
        if group.is_history:
            mine = wrong.get(group.name)
            good = history if mine is None else max(mine.position - layout.block_tokens, 0)
            limit = "all that is indexed" if mine is None else str(mine)
        else:
            good = int(checkpoints[-1]) * layout.block_tokens if len(checkpoints) else 0
            limit = "its last image within the history" if good else "no image within the history"
        reaches.append(GroupReach(group.name, group.kind.name, good, limit))
    return tuple(reaches)
