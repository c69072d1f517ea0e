"""Short histories of what lower tiers hold, on the reference and the manager."""

from kvstrata.core.words import META_STORED_KEYS

from .pair import Pair
from .short_loads import open_pair, plan, tell


def test_the_key_told_of_longest_ago_is_forgotten(stored: Pair) -> None:
    tell(stored, 12)
    tell(stored, 1, tiers=3)  # again, so that the second is the oldest
    tell(stored, 13, first=12)
    assert plan(stored, 61).reference.load.num_blocks == 1
    assert int(stored.subject.arena[META_STORED_KEYS]) == 12
    tell(stored, 13, first=5, tiers=0, kind="OBJECT_REMOVED")
    assert int(stored.subject.arena[META_STORED_KEYS]) == 4
    tell(stored, 2, first=1)
    assert plan(stored, 61).reference.load.num_blocks == 5


def test_block_and_checkpoint_of_a_key_come_and_go_by_themselves(loads: Pair) -> None:
    tell(loads, 2, 2, tiers=2)
    tell(loads, 2, tiers=0, first=1, kind="OBJECT_REMOVED")
    assert plan(loads, 13).reference.load is None
    tell(loads, 2, tiers=1)
    assert plan(loads, 13).reference.load.num_blocks == 2
    tell(loads, 0, 2, tiers=0, kind="OBJECT_REMOVED")
    assert plan(loads, 13).reference.load is None
    loads.crash(True)
    assert int(loads.subject.arena[META_STORED_KEYS]) == 2


def test_nothing_is_remembered_without_rows() -> None:
    pair = open_pair("window")
    tell(pair, 4, 4)
    assert pair.reference.stored.observe()["order"] == []
    assert pair.seen["OBJECT_STORED"] == 5
