"""Actions of lower tiers in a random history: objects come and go, loads begin and end."""

from collections.abc import Callable
from random import Random

from ..reference import keys
from .drawing import draw_prompt
from .pair import Pair
from .tier_verbs import Object

REASONS = ("OBJECT_MISSING", "CHECKSUM_MISMATCH", "STORE_TIMEOUT")


def tell(pair: Pair, rng: Random) -> None:
    """A few blocks of a text, and checkpoints at their ends, are stored or gone."""
    if pair.texts:
        model = "one" if rng.random() < 0.95 else "two"
        chain = chain_of(pair, rng.choice(pair.texts), model)
        if chain:
            is_near = rng.random() < 0.5
            first = first_unknown(pair, chain) if is_near else rng.randrange(len(chain))
            tell_of(pair, rng, chain, first, is_gone=rng.random() < 0.2)


def chain_of(pair: Pair, text: tuple[int, ...], model: str) -> list[bytes]:
    return keys.chain(pair.subject.seed(model), text, pair.case.block_tokens, {})


def first_unknown(pair: Pair, chain: list[bytes]) -> int:
    """The first block that is neither here nor stored, or the last one."""
    here, stored = pair.reference.blocks.index, pair.reference.stored
    for place, key in enumerate(chain):
        if key not in here and not stored.tiers_of(key, False):
            return place
    return len(chain) - 1


def tell_of(pair: Pair, rng: Random, chain: list[bytes], first: int, is_gone: bool) -> None:
    objects: list[Object] = []
    share = rng.choice((0.1, 0.6))  # of blocks, with a checkpoint
    size = pair.case.block_tokens
    for index in range(first, min(first + rng.randint(1, 5), len(chain))):
        for is_checkpoint in (False, True)[: 1 + pair.reference.has_state]:
            if rng.random() < (share if is_checkpoint else 0.95):
                tiers = rng.choice((0, 0, 1, 2)) if is_gone else rng.choice((1, 2, 3, 3, 128))
                objects.append((chain[index], is_checkpoint, tiers, (index + 1) * size))
    pair.tell("OBJECT_REMOVED" if is_gone else "OBJECT_STORED", objects)


def read_tiers(pair: Pair, rng: Random) -> None:
    """A tier fails, or comes back."""
    pair.read_tiers(rng.choice((0, 1, 2, *(255,) * 6)))


def begin_load(pair: Pair, rng: Random) -> None:
    """Load what a plan needs; a plan made some calls ago may be stale by now."""
    old = [plan for plan in pair.plans if plan.reference.load]
    if old and rng.random() < 0.4:
        plan = rng.choice(old)
        pair.plans.remove(plan)
        pair.load(plan)
        return
    prompt = draw_prompt(pair, rng)
    chain = chain_of(pair, prompt.tokens, prompt.model)
    if chain and rng.random() < 0.8:
        tell_of(pair, rng, chain, first_unknown(pair, chain), is_gone=False)
    plan = pair.match(prompt)
    if rng.random() < 0.2:
        pair.plans.append(plan)
        del pair.plans[:-4]
    elif plan.reference.blocks and plan.reference.load and rng.random() < 0.06:
        withdraw(pair, plan.reference.blocks[-1][0])
        pair.load(plan)
    elif plan.reference.load or rng.random() < 0.05:
        pair.load(plan)


def withdraw(pair: Pair, block: int) -> None:
    """A block that a plan would pin is found to be bad."""
    group, slot = next(iter(pair.reference.blocks[block].pages.items()))
    pair.quarantine(group, slot)


def end_load(pair: Pair, rng: Random) -> None:
    """All of a load came whole, or a part, or nothing."""
    running = [load for load in pair.loads if not load.reference.is_ended]
    if not running:
        return
    load = rng.choice(running)
    if load.reference.is_drained:
        pair.end_load(load, 0, False, "LOAD_CANCELLED")
        return
    if rng.random() < 0.05:
        register(pair, rng)
    count = len(load.reference.keys)
    good = count if rng.random() < 0.7 else rng.randint(0, count)
    image = load.reference.sequence.image > 0 and rng.random() < 0.8
    pair.end_load(load, good, image, rng.choice(REASONS))


def drain_load(pair: Pair, rng: Random) -> None:
    running = [load for load in pair.loads if not load.reference.is_ended]
    running = [load for load in running if not load.reference.is_drained]
    if running:
        pair.drain_load(rng.choice(running), rng.choice(("LOAD_CANCELLED", "LOAD_DEADLINE")))


def release_load(pair: Pair, rng: Random) -> None:
    ended = [load for load in pair.loads if load.reference.is_ended]
    if ended:
        pair.release_load(rng.choice(ended))


def register(pair: Pair, rng: Random) -> None:
    """What runs is tainted."""
    pair.register(rng.randrange(len(pair.case.groups)))


TIER_WEIGHTS: dict[Callable[[Pair, Random], None], int] = {
    tell: 8,
    read_tiers: 2,
    begin_load: 36,
    end_load: 20,
    drain_load: 5,
    release_load: 26,
}
"""Beside those of :data:`.actions.WEIGHTS`, where a case has lower tiers."""
