"""Laws that the reference itself keeps between verbs."""

from collections import Counter
from collections.abc import Iterator

from .matching import Matching
from .units import Units
from .values import Sequence


def violations(cache: Matching) -> Iterator[str]:
    """One line for each law that is broken."""
    for units, name in ((cache.blocks, "block"), (cache.images, "image")):
        for line in _of_units(units):
            yield f"{name}: {line}"
        holders = _holders(cache, units)
        for number, unit in units.units.items():
            if unit.references != holders[number]:
                yield f"{name} {number}: {unit.references} references, {holders[number]} holders"
    for group, pool in enumerate(cache.tables.pools):
        free = {slot for slot, page in pool.pages.items() if page.state == "FREE"}
        if free != set(pool.free) or len(free) != len(pool.free):
            yield f"group {group}: pages {free} are free, the free list is {pool.free}"
        for slot, page in pool.pages.items():
            owner = cache.side_of(group).units.get(page.unit)
            if slot not in free and (owner is None or owner.pages.get(group) != slot):
                yield f"group {group}: page {slot} is no page of unit {page.unit}"
    yield from _of_sequences(cache)


def _of_units(units: Units) -> Iterator[str]:
    indexed = {number for number, unit in units.units.items() if unit.state == "indexed"}
    if indexed != set(units.index.values()) or len(indexed) != len(units.index):
        yield f"indexed are {indexed}, the index holds {units.index}"
    if any(units[number].key != key for key, number in units.index.items()):
        yield "a unit is indexed under another key than its own"
    idle = {number for number in indexed if units[number].references == 0}
    if idle != set(units.idle) or len(idle) != len(units.idle):
        yield f"idle are {idle}, the idle list is {units.idle}"
    free = {number for number, unit in units.units.items() if unit.state == "free"}
    if free != set(units.free) or len(free) != len(units.free):
        yield f"free are {free}, the free list is {units.free}"
    if units.limbo:
        yield f"limbo holds {units.limbo} after a verb"
    for number, unit in units.units.items():
        if unit.pages.keys() != (set() if unit.state == "free" else set(units.groups)):
            yield f"{number} is {unit.state} and has pages {unit.pages}"
        if unit.state == "unindexed" and unit.references == 0:
            yield f"{number} is unindexed and nobody holds it"


def _holders(cache: Matching, units: Units) -> Counter[int]:
    held: Counter[int] = Counter()
    is_blocks = units is cache.blocks
    for sequence in cache.sequences.values():
        held.update(sequence.blocks if is_blocks else [*sequence.images, sequence.image])
    for lease in cache.leases.values():
        held.update([*lease.blocks, lease.partial] if is_blocks else [lease.checkpoint])
    held.update(unit.canonical for unit in units.units.values())
    return held


def _of_sequences(cache: Matching) -> Iterator[str]:
    size = cache.sizes.block_tokens
    for row, sequence in cache.sequences.items():
        name = f"sequence of row {row}"
        sealed = [cache.blocks[block].state != "building" for block in sequence.blocks]
        if sealed != [place < sequence.sealed for place in range(len(sealed))]:
            yield f"{name}: {sequence.sealed} blocks sealed, found {sealed}"
        bad = [block for block in sequence.blocks[: sequence.sealed] if _is_bad(cache, block)]
        if bad and not sequence.tainted:
            yield f"{name}: holds the bad blocks {bad} and is not tainted"
        if sequence.is_load:
            yield from _of_load(cache, sequence, name)
            continue
        if sequence.sealed < sequence.position // size:
            yield f"{name}: {sequence.sealed} blocks sealed at position {sequence.position}"
        if len(sequence.blocks) * size < sequence.position:
            yield f"{name}: {len(sequence.blocks)} blocks at position {sequence.position}"
        if sequence.sealed * size > max(sequence.position, sequence.exact):
            yield f"{name}: a block is sealed above {sequence.position}"
        if len(sequence.tokens) != max(sequence.prompt_tokens, sequence.position):
            yield f"{name}: {len(sequence.tokens)} tokens at position {sequence.position}"
        if len(sequence.images) != cache.num_images:
            yield f"{name}: images {sequence.images}"
        if cache.num_images and not {sequence.committed, sequence.front} <= set(sequence.images):
            yield f"{name}: writes images that it does not own"
        is_known = sequence.position > 0 and sequence.position >= sequence.exact
        if cache.num_images and is_known and not sequence.draining:
            state = cache.tables.state_of(cache.images, sequence.committed)
            if state not in ("OPEN", "WRITING"):
                yield f"{name}: its image is {state} at position {sequence.position}"


def _of_load(cache: Matching, load: Sequence, name: str) -> Iterator[str]:
    units = [(cache.blocks, block) for block in load.blocks[load.sealed :]]
    units += [(cache.images, load.image)] if load.image else []
    states = {cache.tables.state_of(*unit) for unit in units}
    if states not in (set(), {"LOADING"}, {"DRAINING"}):
        yield f"{name}: a load's pages are {states}"
    if load.images or load.position or load.draining:
        yield f"{name}: a load runs"


def _is_bad(cache: Matching, block: int) -> bool:
    pages = cache.blocks[block].pages
    states = [cache.tables.pools[group].pages[slot].state for group, slot in pages.items()]
    return "QUARANTINED" in states
