"""Verbs of short histories with lower tiers: all of one text."""

from kvstrata.core.arena import new_arena
from kvstrata.core.crash import end_incarnation
from kvstrata.core.events import LAST_OF_CALL
from kvstrata.core.integrity import find_violations
from kvstrata.core.ring import RING_FLAG_UNLOGGED, RING_FLAGS, new_ring
from kvstrata.core.room import MORE

from ..reference import keys
from .cases import CASES, LONG_LOADS
from .live import Live
from .observe import observe
from .pair import Both, Pair, Prompt
from .subjects import replay

TEXT = tuple(number * 7 % 5 for number in range(700))


def open_pair(name: str) -> Pair:
    """A pair of a case by its name; ``long`` is that of loads which are cut."""
    case = LONG_LOADS if name == "long" else CASES[name]
    return Pair(case, Live(case))


def prompt(num_tokens: int, **fields: int) -> Prompt:
    return Prompt(TEXT[:num_tokens], "one", **fields)


def plan(pair: Pair, num_tokens: int, **fields: int) -> Both:
    return pair.match(prompt(num_tokens, **fields))


def tell(
    pair: Pair,
    num_blocks: int,
    *checkpoints: int,
    first: int = 0,
    tiers: int = 1,
    kind: str = "OBJECT_STORED",
) -> None:
    """Blocks of the text from one on, and the checkpoints behind so many blocks, are stored."""
    size = pair.case.block_tokens
    chain = keys.chain(pair.subject.seed("one"), TEXT, size, {})
    objects = [
        (chain[index], False, tiers, (index + 1) * size) for index in range(first, num_blocks)
    ]
    objects += [(chain[end - 1], True, tiers, end * size) for end in checkpoints]
    for at in range(0, len(objects), 40):
        pair.tell(kind, objects[at : at + 40])


def load(pair: Pair, num_tokens: int) -> Both:
    begun = pair.load(plan(pair, num_tokens))
    assert begun
    return begun


def whole(pair: Pair, begun: Both) -> None:
    """All of a load came."""
    pair.end_load(begun, len(begun.reference.keys), begun.reference.sequence.image > 0)


def compute(pair: Pair, num_tokens: int) -> Both:
    """Begin a prompt with what is here and compute it."""
    sequence = pair.begin(plan(pair, num_tokens))
    assert sequence
    for end in (*sequence.reference.captures, num_tokens):
        count = end - sequence.reference.position
        if count > 0:
            step = pair.reserve([(sequence, count)])
            assert step
            assert not any(step.reference.refused)
            pair.commit(step, None, None)
    return sequence


def leave(pair: Pair, num_tokens: int) -> None:
    pair.finish(compute(pair, num_tokens))


def crash_after_every_call(pair: Pair) -> int:
    """The log may end after any call: what is recovered then is lawful; how many calls."""
    case, count = pair.case, 0
    arena = new_arena(case.layout, case.params)
    for words in pair.log:
        first = 0
        for end in ((words[:, 2] >> 40 & LAST_OF_CALL).nonzero()[0] + 1).tolist():
            replay(arena, words[first:end])
            first, count = end, count + 1
            recovered, ring = arena.copy(), new_ring(case.ring_events)
            ring[RING_FLAGS] = RING_FLAG_UNLOGGED
            while end_incarnation(recovered, ring, True, 0) == MORE:
                pass
            assert find_violations(recovered) == []
            found = observe(recovered)
            assert not found["sequences"]
            states = {state for pool in found["pools"] for state, _, _ in pool["pages"].values()}
            assert states <= {"FREE", "SEALED"}
            assert found["stored"] == observe(arena)["stored"]
    return count
