"""Replay equals live equals the reference, over long random histories.

After every call: the events are those the reference names; pages, free lists, indexes, idle
lists, next victim, sequences, checkpoints, leases and step table are equal; every law holds; and
an arena fed by the log is equal to the live one, word for word.
"""

import json
from collections import Counter

import numpy as np
import pytest

from kvstrata.core.arena import new_arena
from kvstrata.core.crash import end_incarnation
from kvstrata.core.events import LAST_OF_CALL
from kvstrata.core.integrity import find_violations
from kvstrata.core.ring import RING_FLAG_UNLOGGED, RING_FLAGS, new_ring
from kvstrata.core.room import MORE
from kvstrata.core.words import (
    Arena,
)

from .actions import walk
from .cases import CASES, LONG, Case
from .copies import run_python
from .live import Live
from .observe import observe
from .pair import Pair, Prompt
from .subjects import Applied, replay
from .walk import run

SEED = 20_250_101
NUM_ACTIONS = 1_000

SEEN_BY_ALL = """
    abort; begin; cancel; commit; crash; finish; fork; lease; match; quarantine; release; reserve
    resume; suspend; begin NoRoom; begin Stale; commit Misuse; finish Misuse; fork Misuse
    fork NoRoom; fork Stale; lease Misuse; reserve Misuse; resume Misuse; resume NoRoom
    suspend Misuse; began history; began checkpoint; began replay; began cold; began suspended
    resumed there; resumed elsewhere; partial; with_partial; written below exact
    capture prompt; capture branch; capture every; superseded; tainted; orphan; HIT_LIMITED
    refused LONG; refused PAGES; refused BUSY; switched
    block EVICTED; block DUPLICATE; block UNREFERENCED; block FINISHED; block CANCELLED
    block CRASHED; block BYTES_UNTRUSTED; image EVICTED; image UNREFERENCED; image FINISHED
    image CANCELLED; image CRASHED; image BYTES_UNTRUSTED; HISTORY; PRIVATE; CHECKPOINT
    CHECKPOINT_RELEASED; SEQUENCE_CANCELLED; SEQUENCE_FORKED; SEQUENCE_SUSPENDED
    block SUSPENDED; image SUSPENDED; PAGE_DRAINING; PAGE_QUARANTINED
    tell; OBJECT_STORED; OBJECT_REMOVED; forgotten; read_tiers; register
    match stored; match stored replay; began stored; load; drain_load; end_load; release_load
    load Misuse; load NoRoom; load Stale; load behind a prefix; load of a checkpoint alone
    load of blocks alone; loaded image; loaded image that is here; loaded duplicate
    loaded in part; load tainted; crash in a load; crash in a drain
""".replace("\n", ";")


@pytest.fixture(scope="module")
def histories() -> dict[str, Pair]:
    return {name: Pair(case, Live(case)) for name, case in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_long_history_is_equal_live_replayed_and_in_the_reference(
    name: str, histories: dict[str, Pair]
) -> None:
    pair = histories[name]
    walk(pair, SEED, NUM_ACTIONS)
    for snapshot in range(len(pair.snapshots)):
        pair.check_replay(snapshot)


def test_the_histories_meet_everything(histories: dict[str, Pair]) -> None:
    seen: Counter[str] = Counter()
    for pair in histories.values():
        if not pair.seen:  # this test runs alone, or in another process than the one above
            walk(pair, SEED, NUM_ACTIONS)
        seen.update(pair.seen)
    wanted = {name.strip() for name in SEEN_BY_ALL.split(";") if name.strip()}
    assert not {name for name in wanted if not seen[name]}


@pytest.mark.parametrize("name", CASES)
def test_apply_alone_does_what_the_rules_say(name: str) -> None:
    """Fed with events that another encoder makes of the reference's decisions."""
    pair = Pair(CASES[name], Applied(CASES[name]))
    walk(pair, SEED + 1, NUM_ACTIONS // 2)  # compares everything after every action
    began = ("began history", "began checkpoint", "began replay")
    assert sum(pair.seen[name] for name in began)
    assert pair.num_events > NUM_ACTIONS // 4


def test_compiled_and_interpreted_histories_end_in_the_same_bytes() -> None:
    compiled = run(SEED + 2, 200, [])
    finished = run_python(
        ["-m", "tests.core.walk", str(SEED + 2), "200"], None, {"NUMBA_DISABLE_JIT": "1"}
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["cases"] == compiled


def text(word: int, num_tokens: int) -> Prompt:
    return Prompt((word,) * num_tokens, "one")


def test_calls_cut_at_a_quarter_of_the_ring_end_in_the_same_tables() -> None:
    pair = Pair(LONG, Live(LONG))
    one, other = pair.begin(pair.match(text(1, 401))), pair.begin(pair.match(text(2, 401)))
    assert one
    assert other
    step = pair.reserve([(one, 401), (other, 401)])
    assert step
    pair.commit(step, None, None)
    pair.finish(one)
    pair.finish(other)
    third = pair.begin(pair.match(text(3, 600)))  # evicts, and gives all up part-filled
    assert third
    step = pair.reserve([(third, 600)])
    assert step
    pair.abort(step)
    pair.cancel(third)
    fourth = pair.begin(pair.match(text(4, 600)))
    assert fourth
    for num_tokens in (2, 590):
        step = pair.reserve([(fourth, num_tokens)])
        assert step
        pair.commit(step, [num_tokens % 590], None)  # all, then none
    pair.suspend(fourth)
    cut = {name: count for name, count in pair.seen.items() if name.endswith(" cut")}
    assert cut == {"reserve cut": 3, "commit cut": 1, "cancel cut": 1, "suspend cut": 1}
    assert pair.seen["partial"] == 3
    walk(pair, SEED + 3, 60)


def test_two_sequences_that_reach_one_prefix_in_one_step_take_one_checkpoint() -> None:
    case = CASES["window"]
    pair = Pair(case, Live(case))
    prompt = Prompt((0, 1, 2, 0, 1), "one")
    one, other = pair.begin(pair.match(prompt)), pair.begin(pair.match(prompt))
    assert one
    assert other
    step = pair.reserve([(one, 5), (other, 5)])
    assert step
    pair.commit(step, None, None)
    assert pair.seen["CHECKPOINT"] == 1


@pytest.mark.parametrize("name", ["window", "all", "loads"])
def test_a_crash_between_any_two_calls_leaves_lawful_tables(name: str) -> None:
    """A verb may be several calls; the log may end after any of them."""
    case = CASES[name]
    pair = Pair(case, Live(case))
    walk(pair, SEED + 4, 200, num_crashes=0)
    events = np.concatenate(pair.log)
    ends = np.flatnonzero(events[:, 2] >> 40 & LAST_OF_CALL) + 1
    assert len(ends) > len(pair.log), "no verb was several calls"
    arena, last = new_arena(case.layout, case.params), 0
    for number, end in enumerate(ends.tolist()):
        replay(arena, events[last:end])
        last = end
        recovered, ring = arena.copy(), unlogged_ring(case)
        while end_incarnation(recovered, ring, bool(number % 2), 0) == MORE:
            pass
        assert find_violations(recovered) == []
        found = observe(recovered)
        assert not found["sequences"]
        assert not found["leases"]
        taken = {state for pool in found["pools"] for state, _, _ in pool["pages"].values()}
        assert taken <= ({"FREE", "SEALED"} if number % 2 else {"FREE"})


def unlogged_ring(case: Case) -> Arena:
    ring = new_ring(case.ring_events)
    ring[RING_FLAGS] = RING_FLAG_UNLOGGED
    return ring
