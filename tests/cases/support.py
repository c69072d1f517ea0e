"""Drives a manager as an engine does, over bytes that tell which text and position they are of."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kvstrata import CacheConfig, CacheLayout, CacheManager, Kind, LogConfig, Request, Sequence
from kvstrata.core.layout import GroupSpec
from kvstrata.core.presets import Row, sized_group
from kvstrata.core.ranks import RankGroup
from kvstrata.core.words import UNIT_POSITION
from tests.face.support import check_sums, tokens_of

Tokens = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
MARK_BYTES = 8


def text(*parts: tuple[str, int]) -> Tokens:
    """Tokens of named streams one after the other: ("p", 16), ("x", 7) is P[0:16) + X[0:7)."""
    return np.concatenate([tokens_of(name, length) for name, length in parts])


def asked(tokens: Tokens, **fields: Any) -> Request:
    return Request(tokens, model="m", **fields)


def layout_of(
    block_tokens: int,
    windows: Mapping[str, int] | None = None,
    ratios: Mapping[str, int] | None = None,
    rollback_tokens: int = 4,
) -> CacheLayout:
    """History groups by ratio and window groups, each of one layer and of a mark a row."""
    rows, sizes = [Row("kv", "u8", (MARK_BYTES,))], (block_tokens, rollback_tokens)
    groups: list[GroupSpec] = []
    for name, ratio in (ratios or {"full": 1}).items():
        layers = [len(groups)]
        groups.append(sized_group(name, Kind.COMPRESSED, layers, rows, *sizes, ratio=ratio))
    for name, window in (windows or {}).items():
        groups.append(sized_group(name, Kind.SWA, [len(groups)], rows, *sizes, window=window))
    return CacheLayout("case", tuple(groups), *sizes, len(groups))


@contextmanager
def opened(
    layout: CacheLayout,
    blocks: int,
    images: int = 0,
    *,
    with_bytes: bool = False,
    ranks: RankGroup | None = None,
    **changes: Any,
) -> Iterator[CacheManager]:
    """A manager of so many blocks and images; every law of its tables holds at the end."""
    slots = {group.name: blocks + 1 for group in layout.history_groups}
    slots |= {group.name: images + 1 for group in layout.state_groups}
    settings: dict[str, Any] = {
        "slots": slots,
        "max_sequences": 4,
        "max_leases": 2,
        "max_tokens_per_sequence": blocks * layout.block_tokens,
        "log": LogConfig(ring_events=1 << 13),
    }
    config = CacheConfig(**(settings | changes))
    pools: Literal["private"] | None = "private" if with_bytes else None
    with CacheManager.open(layout, config, pools=pools, ranks=ranks) as cache:
        yield cache
        check_sums(cache)


# marks: what the pages hold


@lru_cache(maxsize=64)
def _prefix_marks(tokens: bytes) -> Bytes:
    """uint8[n, 8]: of each position, a digest of all tokens up to it."""
    mark, marks = b"", []
    for at in range(0, len(tokens), 4):
        mark = hashlib.blake2b(mark + tokens[at : at + 4], digest_size=MARK_BYTES).digest()
        marks.append(mark)
    return np.frombuffer(b"".join(marks), dtype=np.uint8).reshape(-1, MARK_BYTES)


def marks_of(group: str, tokens: Tokens) -> Bytes:
    """What a group's rows hold for each position of a text."""
    salt = np.frombuffer(hashlib.blake2b(group.encode(), digest_size=8).digest(), dtype=np.uint8)
    marks: Bytes = _prefix_marks(tokens.tobytes()) ^ salt
    return marks


def view_of(cache: CacheManager, group: str) -> Bytes:
    """uint8[slots, rows, 8] over a pool."""
    assert cache.pools is not None
    view: Bytes = cache.pools.view(group, "kv").numpy()[:, 0]
    return view


def _exact_from(cache: CacheManager, sequence: Sequence, group: GroupSpec) -> int:
    """Where a replay's rows of a layer are right: each layer below saw one window less."""
    reach = max(state.window - 1 for state in cache.layout.state_groups)
    return sequence.origin + group.layers[0] * reach


def write(
    cache: CacheManager,
    sequence: Sequence,
    images: tuple[dict[str, int], dict[str, int]],
    tokens: Tokens,
    start: int,
) -> None:
    """Write what a step from ``start`` to the end of ``tokens`` computes.

    A replay computes from nothing: what lies within the reach of the rows it lacks comes out wrong.
    """
    end, size = len(tokens), cache.layout.block_tokens
    for group in cache.layout.history_groups:
        slots, view = cache.block_slots(sequence, group.name), view_of(cache, group.name)
        ratio, marks = group.ratio, marks_of(group.name, tokens)
        entries = np.arange(start // ratio, end // ratio)
        entries = entries[(entries + 1) * ratio > sequence.protected]
        pages = slots[entries * ratio // size]
        assert cache.writable(group.name, pages, sequence)
        view[pages, entries % (size // ratio)] = marks[(entries + 1) * ratio - 1]
    for group in cache.layout.state_groups:
        read, target = images[0][group.name], images[1][group.name]
        view, marks = view_of(cache, group.name), marks_of(group.name, tokens).copy()
        assert cache.writable(group.name, [target], sequence)
        if read != target:
            view[target] = view[read]
        if sequence.origin:
            marks[: _exact_from(cache, sequence, group)] ^= 0xFF
        positions = np.arange(max(start, end - group.rows), end)
        view[target, positions % group.rows] = marks[positions]


def readable(cache: CacheManager, sequence: Sequence) -> dict[str, bytes]:
    """All that a kernel may read for a sequence's next token, by group."""
    size, position = cache.layout.block_tokens, sequence.position
    found = {}
    for group in cache.layout.history_groups:
        entries = np.arange(max(position, sequence.protected) // group.ratio)
        pages = cache.block_slots(sequence, group.name)[entries * group.ratio // size]
        rows = view_of(cache, group.name)[pages, entries % (size // group.ratio)]
        found[group.name] = rows.tobytes()
    for name, slot in cache.image_slots(sequence).items():
        group = cache.layout.group(name)
        positions = np.arange(max(sequence.origin, position - group.window + 1, 0), position)
        found[name] = view_of(cache, name)[slot, positions % group.rows].tobytes()
    return found


def expected(cache: CacheManager, sequence: Sequence, tokens: Tokens) -> dict[str, bytes]:
    """What :func:`readable` must give where the sequence computes these tokens."""
    position, wanted = sequence.position, {}
    for group in cache.layout.history_groups:
        entries = np.arange(max(position, sequence.protected) // group.ratio)
        marks = marks_of(group.name, tokens)
        wanted[group.name] = marks[(entries + 1) * group.ratio - 1].tobytes()
    for group in cache.layout.state_groups:
        marks = marks_of(group.name, tokens).copy()
        if position < sequence.protected:
            marks[: _exact_from(cache, sequence, group)] ^= 0xFF
        first = max(sequence.origin, position - group.window + 1, 0)
        wanted[group.name] = marks[first:position].tobytes()
    return wanted


# what an engine does


def begin(cache: CacheManager, tokens: Tokens, **fields: Any) -> Sequence:
    """Begin, and check that what is reused is what these tokens give, in every group."""
    sequence = cache.begin(cache.match(asked(tokens, **fields)))
    check_hit(cache, sequence)
    return sequence


def check_hit(cache: CacheManager, sequence: Sequence) -> None:
    """One token is left, every group stands where the hit does, and the bytes are the text's."""
    plan = sequence.plan
    assert plan.resume_at < plan.prompt_tokens
    assert plan.reused_tokens < plan.prompt_tokens
    assert sequence.position == plan.resume_at
    assert len(plan.blocks) * cache.layout.block_tokens == plan.reused_tokens
    if plan.source == "replay":
        reach = max(group.window - 1 for group in cache.layout.state_groups)
        assert plan.reused_tokens - plan.resume_at >= reach
    else:
        assert plan.reused_tokens == plan.resume_at
    if plan.source == "checkpoint":
        assert state_position(cache, plan.checkpoint[0]) == plan.resume_at
    if cache.pools is not None:
        assert readable(cache, sequence) == expected(cache, sequence, plan.request.tokens)


def state_position(cache: CacheManager, image: int) -> int:
    """The position whose state an image holds, in all of its groups."""
    return int(cache.tables.images.rows[image, UNIT_POSITION])


def advance(cache: CacheManager, sequence: Sequence, tokens: Tokens) -> None:
    """One step up to the end of these tokens, all of its text so far."""
    start = sequence.position
    step = cache.reserve([sequence.id], [len(tokens) - start])
    assert step.refused.tolist() == [0]
    if cache.pools is not None:
        write(cache, sequence, step.image_slots(0), tokens, start)
    step.commit(tokens=tokens[start:])
    if cache.pools is not None:
        assert readable(cache, sequence) == expected(cache, sequence, tokens)


def compute(cache: CacheManager, sequence: Sequence) -> None:
    """Compute the rest of a prompt, in steps that end at its captures."""
    tokens = sequence.plan.request.tokens
    for end in (*sequence.captures, len(tokens)):
        if end > sequence.position:
            advance(cache, sequence, tokens[:end])


def prefill(cache: CacheManager, tokens: Tokens, **fields: Any) -> Sequence:
    """Begin and compute a whole prompt."""
    sequence = begin(cache, tokens, **fields)
    compute(cache, sequence)
    return sequence


def serve(cache: CacheManager, tokens: Tokens, **fields: Any) -> Sequence:
    """A whole request; the sequence has ended."""
    sequence = prefill(cache, tokens, **fields)
    sequence.finish()
    return sequence


def found(cache: CacheManager, tokens: Tokens, **fields: Any) -> tuple[str, int, int]:
    """How a request would be served: its source, its resume point, tokens reused."""
    plan = cache.match(asked(tokens, **fields))
    return plan.source, plan.resume_at, plan.reused_tokens
