"""What a random history is made of: each action draws its arguments and drives both sides.

All randomness comes from one ``random.Random``: a seeded one in long walks, hypothesis' own in
the state machine, so that failures shrink.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from .drawing import (
    accepted_tokens,
    draw_prompt,
    draw_tokens,
    has_room,
    remember,
    tokens_from,
    written_tokens,
)
from .pair import Both, Pair, Prompt
from .tier_actions import TIER_WEIGHTS


def open_plan(pair: Pair, rng: Random) -> Both:
    """A fresh plan, or one made some calls ago and perhaps stale by now."""
    if pair.plans and rng.random() < 0.4:
        return pair.plans.pop(rng.randrange(len(pair.plans)))
    return pair.match(draw_prompt(pair, rng))


def plan_ahead(pair: Pair, rng: Random) -> None:
    pair.plans.append(pair.match(draw_prompt(pair, rng)))
    del pair.plans[:-4]


def begin(pair: Pair, rng: Random) -> None:
    pair.begin(open_plan(pair, rng))


def begin_twice(pair: Pair, rng: Random) -> None:
    """Two sequences compute the same prompt side by side: duplicates."""
    prompt = draw_prompt(pair, rng)
    for _ in range(2):
        pair.begin(pair.match(prompt))


def reserve(pair: Pair, rng: Random) -> None:
    running = [s for s in pair.sequences if not s.reference.draining]
    chosen = rng.sample(running, rng.randint(1, len(running))) if running else []
    if chosen:
        pair.reserve([(s, draw_tokens(pair, s, rng)) for s in chosen])


def commit(pair: Pair, rng: Random) -> None:
    """Commit the oldest step: whole, in part, or not at all."""
    if pair.steps:
        step, accepted = pair.steps[0], None
        if rng.random() < 0.3:
            accepted = [accepted_tokens(pair, row, rng) for row in step.reference.rows]
        pair.commit(step, accepted, written_tokens(pair, step, rng))


def abort(pair: Pair, rng: Random) -> None:
    if pair.steps:
        pair.abort(rng.choice(pair.steps))


def finish(pair: Pair, rng: Random) -> None:
    """Finish a sequence, mostly one past its prompt; one with a step in flight is refused."""
    chosen = pair.sequences
    if rng.random() < 0.8:
        chosen = [s for s in chosen if s.reference.position >= s.reference.prompt_tokens]
        chosen = [s for s in chosen if not pair.reference.rows_in_flight(s.reference)]
    if chosen:
        sequence = rng.choice(chosen)
        s = sequence.reference
        remember(pair, tuple(s.tokens[: max(1, s.position)]))
        pair.finish(sequence)
        pair.ended.append(sequence)
        del pair.ended[:-4]


def suspend(pair: Pair, rng: Random) -> None:
    """Suspend a sequence wherever it is; one with a step in flight is refused."""
    chosen = pair.sequences
    if rng.random() < 0.9:
        chosen = [s for s in chosen if not pair.reference.rows_in_flight(s.reference)]
    if rng.random() < 0.8:
        chosen = [s for s in chosen if s.reference.position > 0]
    if chosen:
        sequence = rng.choice(chosen)
        if pair.suspend(sequence):
            remember(pair, tuple(sequence.reference.tokens))
            pair.ended.append(sequence)
        del pair.ended[:-4], pair.pauses[:-4]


def resume(pair: Pair, rng: Random) -> None:
    """Go on with what was suspended: at once or after evictions, once or several times."""
    if pair.pauses and has_room(pair, rng):
        pause = rng.choice(pair.pauses)
        if pair.resume(pause, tokens_from(pair, pause, rng)) and rng.random() < 0.6:
            pair.pauses.remove(pause)


def plan_to_resume(pair: Pair, rng: Random) -> None:
    """A plan with ``at``, of what was suspended there or of anything else."""
    if pair.pauses and rng.random() < 0.8:
        pause = rng.choice(pair.pauses)
        tokens, at = tokens_from(pair, pause, rng), pause.position
        extras = pause.both.reference.extras
        prompt = Prompt(tokens, pause.model, extras, at=at)
    else:
        prompt = draw_prompt(pair, rng)
        prompt = replace(prompt, at=rng.randrange(len(prompt.tokens) + 2))
    plan = pair.match(prompt)
    if has_room(pair, rng) and rng.random() < 0.6:
        pair.begin(plan)
    else:
        pair.plans.append(plan)
        del pair.plans[:-4]


def fork(pair: Pair, rng: Random) -> None:
    """A second sequence goes on from where one is; one with a step in flight is refused."""
    chosen = pair.sequences
    if rng.random() < 0.9:
        chosen = [s for s in chosen if not pair.reference.rows_in_flight(s.reference)]
    if chosen and has_room(pair, rng):
        pair.fork(rng.choice(chosen))


def cancel(pair: Pair, rng: Random) -> None:
    if pair.sequences:
        pair.cancel(rng.choice(pair.sequences))


def lease(pair: Pair, rng: Random) -> None:
    """Pin a prefix; a plan that reuses nothing is refused."""
    plan = open_plan(pair, rng)
    if not plan.reference.pins_nothing or rng.random() < 0.1:
        pair.lease(plan)


def release(pair: Pair, rng: Random) -> None:
    if pair.leases:
        pair.release(rng.choice(pair.leases))


def quarantine(pair: Pair, rng: Random) -> None:
    """A sealed page is found to be bad: indexed or not, referenced or not; often one in use."""
    tables = pair.reference.tables
    running = list(pair.reference.sequences.values())
    in_use = {(0, block) for s in running for block in s.blocks}
    in_use |= {(1, s.origin[0]) for s in running if s.origin}
    sealed = [
        (group, slot, (int(group >= pair.case.sizes.num_history), page.unit) in in_use)
        for group, pool in enumerate(tables.pools)
        for slot, page in pool.pages.items()
        if page.state == "SEALED"
    ]
    kind = rng.random()
    if kind < 0.4:
        sealed = [one for one in sealed if one[2]]
    elif kind < 0.6:
        sealed = [one for one in sealed if one[0] >= pair.case.sizes.num_history]
    if sealed:
        group, slot, _ = rng.choice(sealed)
        pair.quarantine(group, slot)


def crash(pair: Pair, rng: Random) -> None:
    pair.crash(bytes_trusted=rng.random() < 0.8)


def misuse(pair: Pair, rng: Random) -> None:
    """What no caller may do: refused by both, and nothing changes."""
    running = [s for s in pair.sequences if not s.reference.draining]
    kind = rng.choice(("order", "accepted", "twice", "none", "ended"))
    if kind == "order" and len(pair.steps) > 1:
        pair.commit(rng.choice(pair.steps[1:]), None, None)
    elif kind == "accepted" and pair.steps:
        step = pair.steps[0]
        rows = [row for row in step.reference.rows if row]
        if rows and not any(row.is_void or row.sequence.draining for row in rows):
            accepted = [row.num_tokens if row else 0 for row in step.reference.rows]
            accepted[step.reference.rows.index(rows[0])] = rng.choice((-1, rows[0].num_tokens + 1))
            pair.commit(step, accepted, None)
    elif kind == "twice" and running:
        pair.reserve([(running[0], 1), *((s, 1) for s in running)])
    elif kind == "none" and running:
        pair.reserve([(running[0], 0)])
    elif kind == "ended" and pair.ended:
        sequence = rng.choice(pair.ended)
        verbs = (
            *(pair.finish, pair.cancel, pair.suspend, pair.fork),
            lambda s: pair.reserve([(s, 1)]),
        )
        rng.choice(verbs)(sequence)


def look_back(pair: Pair, rng: Random) -> None:
    """Replay from a snapshot taken earlier, and take another."""
    pair.check_laws()
    pair.check_replay(rng.randrange(len(pair.snapshots)))
    pair.take_snapshot()


Action = Callable[[Pair, Random], None]

WEIGHTS: dict[Action, int] = {
    begin: 14,
    begin_twice: 2,
    plan_ahead: 6,
    reserve: 36,
    commit: 40,
    abort: 2,
    finish: 14,
    cancel: 3,
    suspend: 9,
    resume: 9,
    plan_to_resume: 5,
    fork: 5,
    lease: 3,
    release: 3,
    quarantine: 2,
    misuse: 2,
    look_back: 2,
}


def walk(pair: Pair, seed: int, num_actions: int, num_crashes: int | None = None) -> None:
    """A long random history; crashes are spread over it."""
    rng = Random(seed)
    if num_crashes is None:
        num_crashes = 8 if pair.case.stored_keys else 2
    each = WEIGHTS | TIER_WEIGHTS if pair.case.stored_keys else WEIGHTS
    actions, weights = list(each), list(each.values())
    for number in range(1, num_actions + 1):
        rng.choices(actions, weights)[0](pair, rng)
        if number % (num_actions // (num_crashes + 1) + 1) == 0:
            crash(pair, rng)
    pair.check_laws()
    pair.check_replay(0)
