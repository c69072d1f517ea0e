"""Every reason about a page: provoked, explained, not adopted, logged, counted, and healed."""

import pytest

from kvstrata.core.events import EventType
from tests.face.support import check_sums, hit, serve

from .provocations import BLOCK, PAGES, Provocation, another_abi
from .support import (
    GROUPS,
    HISTORY,
    WANTED,
    Log,
    begun,
    counted,
    explained,
    filled,
    page_row,
    slot_of,
)

FAILED = EventType.VALIDATION_FAILED


@pytest.mark.parametrize("this", PAGES, ids=str)
def test_a_bad_page(this: Provocation) -> None:
    cache = filled()
    slot = slot_of(cache, WANTED, this.names, BLOCK)
    if this.damage.__name__ == "no_page":
        slot = 0
    this.damage(cache, this.group, BLOCK)
    log = Log(cache)
    named = f"{this.names} page {slot}" if slot else this.names
    expected = explained(cache, f"layer {this.layer} {this.reason.name}: {named} at ")
    assert not log.new()
    source, resume_at, reused = begun(cache, expected)

    # not adopted: nothing of the damaged unit is among what was
    if not this.heals:
        assert source == "cold"
    elif this.group in HISTORY:
        assert reused <= BLOCK * 16
    else:
        assert (source, resume_at, reused) == ("replay", 48, 80)

    # logged, with its layer, reason, group and page
    events = log.new(FAILED)
    assert (
        len(events)
        == cache.stats().validation_failures[counted(this.layer, this.reason, this.names)]
    )
    for event, payload in events:
        assert (event["reason"], payload["layer"]) == (this.reason, this.layer)
        assert (GROUPS[event["group"]], event["page"]) == (this.names, slot)
        if slot:
            assert event["generation"] in (0, page_row(cache, this.names, slot)[1])
    if not this.heals:
        return

    # withdrawn, computed again, and good again
    assert len(events) == 1
    check_sums(cache)
    assert hit(cache, WANTED) == ((48, 48) if this.group in HISTORY else (48, 80)), (
        "the damaged unit is not found any more"
    )
    serve(cache, WANTED)
    assert begun(cache, ("checkpoint", 80, 80))
    assert not log.new(FAILED)
    check_sums(cache)


@pytest.mark.parametrize("group", HISTORY)
def test_each_history_group_is_explained_by_itself(group: str) -> None:
    cache = filled()
    another_abi(cache, group, BLOCK)
    reach = {each.group: each.tokens for each in cache.explain(WANTED).groups}
    for name in HISTORY:
        assert reach[name] == (48 if name == group else 80)
