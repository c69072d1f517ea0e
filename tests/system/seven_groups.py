"""A manager of the four device kinds in seven groups, over bytes of no pattern."""

from types import SimpleNamespace

from kvstrata import CacheLayout, CacheManager, Request
from kvstrata.core.words import PAGE_CHECKSUM, PAGE_GENERATION, PAGE_STATE, POOL_FIRST
from tests.face.support import Place, config, hit, request, serve

LAYOUT = CacheLayout.from_hf_config(
    SimpleNamespace(
        model_type="deepseek_v4",
        layer_types=["compressed_sparse_attention", "heavily_compressed_attention"],
        compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
        sliding_window=16,
        head_dim=8,
        index_head_dim=4,
    ),
    "bf16",
)
"""The four device kinds in seven groups, small."""
GROUPS = [group.name for group in LAYOUT.groups]
HISTORY = [group.name for group in LAYOUT.history_groups]
STATES = [group.name for group in LAYOUT.state_groups]
PAGE_BYTES = {group.name: group.page_bytes for group in LAYOUT.groups}
SLOTS = {
    group.name: (40 if group.name in HISTORY else 20) + 3 * number
    for number, group in enumerate(LAYOUT.groups)
}
"""Pools of different lengths, so that the pages of one unit come to have different slots."""
SHORT, WANTED, OTHER = request("damaged", 50), request("damaged", 90), request("other", 60)


def open_cache(place: Place, verify_hits: str = "always") -> CacheManager:
    settings = config(
        {"ring_events": 4096, "segment_bytes": 8 << 20, "shared_memory_root": place.shared},
        slots=SLOTS,
        verify_hits=verify_hits,
    )
    return CacheManager.open(LAYOUT, settings, place.directory, "shared")


def filled(place: Place, verify_hits: str = "always") -> CacheManager:
    """Checkpoints at 48 and 80 of one prompt and at 48 of another, over bytes of no pattern."""
    cache = open_cache(place, verify_hits)
    assert cache.pools is not None
    for name in GROUPS:
        cache.pools.storage(name).random_()
    for number in range(12):
        serve(cache, request(f"before {number}", 90))
    for wanted in (SHORT, WANTED, OTHER):
        serve(cache, wanted)
    assert hit(cache, WANTED) == (80, 80)
    for names in (HISTORY, STATES):
        assert len({slot_of(cache, WANTED, name) for name in names}) == len(names)
    return cache


def slot_of(cache: CacheManager, wanted: Request, group: str, block: int = -1) -> int:
    """The page of one block of a hit, or of its checkpoint."""
    plan = cache.match(wanted)
    if group in HISTORY:
        unit = int(plan.blocks[block, 0])
        return int(cache.tables.blocks.pages[unit, HISTORY.index(group)])
    return int(cache.tables.images.pages[plan.checkpoint[0], STATES.index(group)])


def flip(cache: CacheManager, group: str, slot: int, byte: int = 3, bit: int = 1) -> None:
    assert cache.pools is not None
    cache.pools.storage(group)[slot, byte] ^= bit


def row_of(cache: CacheManager, group: str, slot: int) -> list[int]:
    number = GROUPS.index(group)
    row = cache.tables.pages[int(cache.tables.pools[number, POOL_FIRST]) + slot]
    return [int(row[place]) for place in (PAGE_STATE, PAGE_GENERATION, PAGE_CHECKSUM)]


def bytes_of(cache: CacheManager, slots: dict[str, int]) -> dict[str, bytes]:
    assert cache.pools is not None
    return {name: cache.pools.storage(name)[slot].numpy().tobytes() for name, slot in slots.items()}
