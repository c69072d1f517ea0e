"""Block tables: filled in place, scratch wherever there is nothing, never at another address."""

import numpy as np
import pytest

from kvstrata import BlockTables, CacheManager, CapacityError, ConfigError, Sequence, StaleLease
from tests.face.support import prefill, request, serve

from .support import HISTORY, STATES, WANTED, open_cache


@pytest.fixture
def cache() -> CacheManager:
    """Pages of one block have different slots in different groups."""
    cache = open_cache()
    for number in range(3):
        serve(cache, request(f"before {number}", 90 + 10 * number))
    return cache


def expected(cache: CacheManager, sequences: list[Sequence | None], group: str) -> np.ndarray:
    """The table by the public view of each sequence."""
    table = np.zeros((4, 12), dtype=np.int32)
    for row, sequence in enumerate(sequences):
        if sequence is not None:
            slots = cache.block_slots(sequence, group)
            table[row, : len(slots)] = slots
    return table


def check(cache: CacheManager, tables: BlockTables, sequences: list[Sequence | None]) -> None:
    tables.fill([0 if sequence is None else sequence.id for sequence in sequences])
    for group in HISTORY:
        assert np.array_equal(tables.blocks[group].numpy(), expected(cache, sequences, group))
    for group in STATES:
        found = tables.images[group].tolist()
        slots = [
            0 if sequence is None else cache.image_slots(sequence)[group] for sequence in sequences
        ]
        assert found == slots + [0] * (4 - len(slots))


def addresses(tables: BlockTables) -> list[int]:
    return [tensor.data_ptr() for tensor in [*tables.blocks.values(), *tables.images.values()]]


def test_they_follow_the_sequences_in_place(cache: CacheManager) -> None:
    tables = BlockTables(cache, 4, 12)
    before = addresses(tables)
    long, short = prefill(cache, request("long", 150)), prefill(cache, request("short", 20))
    check(cache, tables, [long, short])
    assert np.count_nonzero(tables.blocks["c4"].numpy()) == 12
    check(cache, tables, [short, long])  # the tail of what stood there before is gone
    check(cache, tables, [None, short])
    assert not tables.blocks["c16"][0].any()
    check(cache, tables, [])
    check(cache, tables, [None, None, None, long])
    for token in range(30):
        cache.reserve([short.id], [1]).commit(tokens=[token])
        check(cache, tables, [long, short])
    long.finish()
    check(cache, tables, [short])
    assert addresses(tables) == before
    assert all(tensor.is_contiguous() for tensor in tables.blocks.values())


def test_a_step_in_flight_has_its_blocks(cache: CacheManager) -> None:
    tables = BlockTables(cache, 4, 12)
    sequence = prefill(cache, request("long", 50))
    step = cache.reserve([sequence.id], [60])
    check(cache, tables, [sequence])
    assert np.count_nonzero(tables.blocks["c4"][0].numpy()) == 7
    before = tables.images["swa"][0].item()
    step.commit(tokens=list(range(60)))
    check(cache, tables, [sequence])
    assert tables.images["swa"][0].item() != before, "so large a step writes another image"


def test_scratch_is_nobodys(cache: CacheManager) -> None:
    """Slot 0 is written by padding; no sequence, checkpoint or lease has it."""
    assert cache.pools is not None
    running = [prefill(cache, request(f"row {number}", 40)) for number in range(4)]
    for group in HISTORY:
        assert all(cache.block_slots(sequence, group).all() for sequence in running)
    for group in STATES:
        assert all(cache.image_slots(sequence)[group] for sequence in running)
    for group in (*HISTORY, *STATES):
        cache.pools.storage(group)[0].random_()
        assert not cache.writable(group, [0])
    assert cache.scrub(1 << 30).bad == 0


def test_a_hit_and_its_fork_share(cache: CacheManager) -> None:
    serve(cache, WANTED)
    tables = BlockTables(cache, 4, 12)
    first = prefill(cache, WANTED)
    second = first.fork()
    check(cache, tables, [first, second])
    shared = tables.blocks["c4"].numpy()
    assert np.array_equal(shared[0, :5], shared[1, :5])
    assert shared[0, 5] != shared[1, 5]
    assert len({tables.images["swa"][row].item() for row in (0, 1)}) == 2


def test_refused(cache: CacheManager) -> None:
    tables = BlockTables(cache, 4, 5)
    ok, long = prefill(cache, request("ok", 40)), prefill(cache, request("long", 100))
    tables.fill([ok.id])
    before = {group: table.clone() for group, table in tables.blocks.items()}

    def unchanged() -> bool:
        return all(table.equal(before[group]) for group, table in tables.blocks.items())

    with pytest.raises(CapacityError, match="expected at most 5 blocks"):
        tables.fill([long.id])
    assert unchanged()
    with pytest.raises(ConfigError, match="at most 4 sequences"):
        tables.fill([ok.id] * 5)
    ended = prefill(cache, request("ended", 20))
    ended.finish()
    with pytest.raises(StaleLease, match="has ended"):
        tables.fill([long.id, ended.id])
    assert unchanged()
    for batch, blocks in ((0, 4), (4, 0), (-1, 3)):
        with pytest.raises(ConfigError, match="at least one row and column"):
            BlockTables(cache, batch, blocks)
    tables.fill([ok.id])
    assert unchanged()


def test_a_cancelled_sequence_has_no_row(cache: CacheManager) -> None:
    tables = BlockTables(cache, 4, 12)
    sequence = prefill(cache, request("row", 40))
    step = cache.reserve([sequence.id], [5])
    sequence.cancel()
    with pytest.raises(StaleLease, match="cancelled"):
        tables.fill([sequence.id])
    step.abort()


def test_a_refused_fill_writes_nothing() -> None:
    cache = open_cache()
    tables = BlockTables(cache, 4, 5)
    ok, other = prefill(cache, request("ok", 40)), prefill(cache, request("other", 40))
    long = prefill(cache, request("long", 100))
    tables.fill([ok.id, other.id])
    before = {group: tables.blocks[group].clone() for group in HISTORY}
    with pytest.raises(CapacityError):
        tables.fill([other.id, long.id, ok.id])
    for group in HISTORY:
        assert tables.blocks[group].equal(before[group])
