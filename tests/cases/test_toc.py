"""Cases TOC: between the check and the use, pages change hands."""

import threading

import numpy as np
import pytest

from kvstrata import CacheManager, Sequence, StaleLease
from kvstrata.core.words import UNIT_REFS
from tests.face.support import pages_in

from .support import (
    advance,
    asked,
    begin,
    found,
    layout_of,
    marks_of,
    opened,
    prefill,
    serve,
    text,
    view_of,
    write,
)

FULL = layout_of(16)


def slots_of(cache: CacheManager, sequence: Sequence) -> list[int]:
    return [int(slot) for slot in cache.block_slots(sequence, "full")]


def settle(cache: CacheManager) -> None:
    """A call that takes in what was reported; it begins and ends a sequence that has no page."""
    cache.begin(cache.match(asked(text(("settles", 5))))).cancel()


@pytest.mark.parametrize("in_flight", ["the write", "a step too"])
def test_toc_01_freed_while_written(in_flight: str) -> None:
    """Pages 14 to 44 are being written by a remote writer when their request is aborted; another
    one wants 32 pages, of which 13 are free."""
    with opened(FULL, 44, with_bytes=True, admission=None) as cache:
        filler = cache.begin(cache.match(asked(text(("filler", 300)))))
        cache.reserve([filler.id], [13 * 16]).abort()
        a = cache.begin(cache.match(asked(text(("a", 500)))))
        step = cache.reserve([a.id], [31 * 16])
        assert slots_of(cache, a) == list(range(14, 45))
        theirs = slots_of(cache, a)
        transfer = cache.begin_transfer(a)
        if in_flight == "the write":
            step.abort()
        a.cancel()
        filler.cancel()
        if in_flight == "a step too":
            step.abort()
        assert pages_in(cache, "full") == {"draining": 31, "free": 13}

        b = cache.begin(cache.match(asked(text(("b", 512)))))
        wanted = cache.reserve([b.id], [32 * 16])
        assert wanted.refused.tolist() == [3]  # it waits
        wanted.abort()
        advance(cache, b, text(("b", 13 * 16)))  # or gets other pages
        assert not set(slots_of(cache, b)) & set(theirs)
        view_of(cache, "full")[theirs] = 0xEE  # the remote writer goes on
        assert found(cache, text(("b", 512)))[2] == 13 * 16
        begin(cache, text(("b", 512))).cancel()  # its bytes are its own

        transfer.complete()
        advance(cache, b, text(("b", 512)))
        assert len(set(slots_of(cache, b)) & set(theirs)) == 19
        b.finish()
        assert "draining" not in pages_in(cache, "full")


def test_toc_01_sealed_pages_stay_while_they_are_read() -> None:
    """The pages are complete already, and a copier still reads them: nobody else gets them."""
    with opened(FULL, 20, with_bytes=True, admission=None) as cache:
        a = prefill(cache, text(("a", 160)))
        theirs = slots_of(cache, a)
        transfer = cache.begin_transfer(a)
        with pytest.raises(StaleLease, match="expected no step in flight"):
            a.finish()
        a.cancel()
        b = cache.begin(cache.match(asked(text(("b", 240)))))
        step = cache.reserve([b.id], [240])
        assert step.refused.tolist() == [3]
        step.abort()
        advance(cache, b, text(("b", 160)))
        assert not set(slots_of(cache, b)) & set(theirs)
        assert (
            view_of(cache, "full")[theirs].reshape(160, 8) == marks_of("full", text(("a", 160)))
        ).all()
        transfer.complete()
        advance(cache, b, text(("b", 240)))
        assert set(slots_of(cache, b)) & set(theirs)
        b.finish()


@pytest.mark.parametrize("reporter", ["this thread", "another thread"])
@pytest.mark.parametrize("kept", [True, False], ids=["sealed", "nothing sealed"])
def test_toc_03_completion_twice_or_for_unknown(reporter: str, kept: bool) -> None:
    """Of a pool of 16 pages a request takes 4, into which something loads; then its completion
    comes again, one comes for a transfer that never was, and it is finished twice."""

    def report(*identities: int) -> None:
        def say() -> None:
            for identity in identities:
                cache.complete(identity)

        if reporter == "this thread":
            say()
            return
        thread = threading.Thread(target=say)
        thread.start()
        thread.join()

    with opened(FULL, 16, with_bytes=True) as cache:
        a = cache.begin(cache.match(asked(text(("a", 64)))))
        step = cache.reserve([a.id], [64])
        transfer = cache.begin_transfer(a)
        assert pages_in(cache, "full") == {"writing": 4, "free": 12}
        if kept:
            write(cache, a, step.image_slots(0), text(("a", 64)), 0)
            step.commit()
        else:
            step.abort()
        ghost = transfer.id + (1 << 20)
        report(transfer.id, a.id)
        report(transfer.id, ghost, a.id)
        settle(cache)
        assert cache.stats().sequences == 0
        assert cache.stats().completion_anomalies == {
            "duplicate_completion": 1,
            "ghost_completion": 1,
            "late_completion": 1,
        }
        assert cache.stats().events["completion_anomaly"] == 3
        pages = pages_in(cache, "full")
        assert pages == ({"free": 12, "sealed_idle": 4} if kept else {"free": 16})
        blocks = cache.stats().blocks
        assert blocks["free"] + blocks["idle"] == 16
        assert not cache.tables.blocks.rows[:, UNIT_REFS].any()
        with pytest.raises(StaleLease):
            a.finish()
        serve(cache, text(("b", 256)))  # all of them can be taken
        assert cache.stats().events["completion_anomaly"] == 3


@pytest.mark.parametrize("identity", [0, 1, -1, 0xFFFF, 1 << 16 | 1, 1 << 62 | 0xFFFF, 1 << 70])
def test_toc_03_made_up_completions_are_counted(identity: int) -> None:
    with opened(FULL, 16) as cache:
        serve(cache, text(("a", 64)))
        before = pages_in(cache, "full")
        cache.complete(identity)
        settle(cache)
        assert sum(cache.stats().completion_anomalies.values()) == 1
        assert pages_in(cache, "full") == before


def test_toc_04_stale_bytes_under_right_key() -> None:
    """A copy of block 7 was queued when the block went to another request. What was queued names
    the generation it saw, and is refused."""
    with opened(FULL, 8, with_bytes=True, admission=None) as cache:
        k = text(("k", 113))
        serve(cache, k)
        queued = cache.match(asked(k))
        assert (queued.blocks[-1] == [7, 1]).all()
        assert cache.page_generation("full", 7) == 1
        z = prefill(cache, text(("z", 33)))
        assert 7 in slots_of(cache, z)
        assert cache.page_generation("full", 7) == 2
        for use in (cache.lease, cache.begin):
            with pytest.raises(StaleLease, match="the plan's pages changed since"):
                use(queued)
        assert found(cache, k)[2] == 5 * 16  # z's bytes are not under k
        begin(cache, k).cancel()
        z.finish()


def test_toc_04_what_is_leased_is_not_given_away() -> None:
    """The copier leased the block first: the other request gets other pages."""
    with opened(FULL, 8, with_bytes=True, admission=None) as cache:
        k = text(("k", 113))
        serve(cache, k)
        with cache.lease(cache.match(asked(k))) as lease:
            z = cache.begin(cache.match(asked(text(("z", 33)))))
            step = cache.reserve([z.id], [33])
            assert step.refused.tolist() == [3]
            step.abort()
            advance(cache, z, text(("z", 16)))
            assert not set(slots_of(cache, z)) & set(range(1, 8))
            lease.verify()
            address = lease.state_data_ptrs["full"]
            assert address.page(7) == address.address + 7 * address.stride
            read = view_of(cache, "full")[cache.tables.blocks.pages[lease.plan.blocks[:, 0], 0]]
            assert (read.reshape(112, 8) == marks_of("full", k)[:112]).all()
        with pytest.raises(StaleLease, match="was released"):
            lease.verify()
        advance(cache, z, text(("z", 33)))
        assert 7 in slots_of(cache, z)
        z.finish()


def test_toc_04_a_lease_is_checked_again_at_use() -> None:
    """The block was withdrawn, or the pool moved, while the copy was queued."""
    with opened(FULL, 8, with_bytes=True) as cache:
        k = text(("k", 113))
        serve(cache, k)
        lease = cache.lease(cache.match(asked(k)))
        assert cache.pools is not None
        view_of(cache, "full")[7] ^= 1
        assert cache.scrub(1 << 20).bad == 1
        with pytest.raises(StaleLease, match="a page was quarantined since"):
            lease.verify()
        assert found(cache, k)[2] == 6 * 16
        lease.release()
        assert "quarantined" not in pages_in(cache, "full")


def test_toc_04_nothing_of_a_step_in_flight_is_under_its_key() -> None:
    """Between reserve and commit the pages have no key: what is half written cannot be copied."""
    with opened(FULL, 8, with_bytes=True) as cache:
        z = text(("z", 64))
        sequence = cache.begin(cache.match(asked(z)))
        step = cache.reserve([sequence.id], [64])
        more = np.append(z, np.int32(1))
        assert found(cache, more) == ("cold", 0, 0)
        write(cache, sequence, step.image_slots(0), z, 0)
        assert found(cache, more) == ("cold", 0, 0)
        step.commit()
        assert found(cache, more) == ("history", 64, 64)
        sequence.finish()
