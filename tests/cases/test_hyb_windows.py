"""Cases HYB, continued: rings, tables and readers; see :mod:`.test_hyb` for how they map."""

from typing import Any

import numpy as np
import pytest

from kvstrata.block_tables import BlockTables

from .support import (
    advance,
    asked,
    begin,
    compute,
    found,
    layout_of,
    opened,
    prefill,
    readable,
    serve,
    state_position,
    text,
    view_of,
)


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "running"])
def test_hyb_11_ring_overwrites_prefix(finished: bool) -> None:
    """After 1000 tokens a ring of 512 holds [488, 1000): nothing can resume at 600, although the
    larger ring still could."""
    layout = layout_of(40, {"ring512": 512, "ring4096": 4096})
    with opened(layout, 60, 16, with_bytes=True) as cache:
        first = prefill(cache, text(("p", 1_000)))
        if finished:
            first.finish()
        branch = text(("p", 600), ("q", 50))
        plan = cache.match(asked(branch))
        assert plan.history_tokens == 600
        assert (plan.source, plan.resume_at, plan.reused_tokens) == ("cold", 0, 0)
        reach = {group.group: group.tokens for group in cache.explain(asked(branch)).groups}
        assert reach == {"full": 600, "ring512": 0, "ring4096": 0}
        sequence = prefill(cache, branch)
        assert cache.stats().events["hit_limited"] == 1
        sequence.finish()
        # where the prompts part the state is kept now
        assert found(cache, text(("p", 600), ("r", 50))) == ("checkpoint", 600, 600)
        serve(cache, text(("p", 600), ("r", 50)))
        if not finished:
            first.finish()


@pytest.mark.parametrize("spare", [8, 6, 5], ids=["the case", "as few as do", "too few"])
def test_hyb_12_window_lru_not_window_aware(spare: int) -> None:
    """Two idle sessions, and a busy one that comes back twenty times, each time a block longer.
    What the busy one leaves behind goes before the last images of the idle ones.

    Twenty pages of 64 hold ten windows of 128: ten images, two of them the running sequence's. With
    less than two for each session the hit is as long, and the window is computed again.
    """
    layout = layout_of(64, {"swa": 128})
    sizes: dict[str, Any] = {"max_sequences": 1, "max_tokens_per_sequence": 32_832}
    idle = text(("a", 32_832)), text(("b", 32_832))
    with opened(layout, 1_100, 2 + spare, **sizes) as cache:
        for session in idle:
            serve(cache, session[:32_768])
        for turn in range(21):
            before = cache.stats().images
            busy = serve(cache, text(("c", 2_048 + 64 * turn)))
            assert busy.resumed_at == (0 if turn == 0 else 2_048 + 64 * (turn - 1))
            if before["free"] < 2 and turn > 1:
                old = text(("c", 2_048 + 64 * (turn - 2)), ("x", 9))
                assert found(cache, old)[0] != "checkpoint"
            for session in idle:
                asks = np.concatenate([session[:32_768], text(("x", 10))])
                source, resume_at, reused = found(cache, asks)
                assert reused == 32_768
                assert (source, resume_at) == ("checkpoint", 32_768) or spare < 6
        assert cache.stats().images["free"] == 2
        for session in idle:
            again = begin(cache, np.concatenate([session[:32_768], text(("y", 10))]))
            assert again.protected == 32_768
            again.cancel()


def test_hyb_12_one_long_output_keeps_one_image() -> None:
    """The busy session generates its twenty blocks in one request: one rolling image."""
    layout = layout_of(64, {"swa": 128}, rollback_tokens=64)
    with opened(layout, 120, 8, max_sequences=1) as cache:
        for name in "ab":
            serve(cache, text((name, 1_024)))
        busy = prefill(cache, text(("c", 2_048)))
        indexed = cache.stats().images["indexed"]
        for end in range(2_112, 2_048 + 21 * 64, 64):
            advance(cache, busy, text(("c", end)))
            assert cache.stats().images["indexed"] == indexed
        busy.finish()
        for name in "ab":
            assert found(cache, text((name, 1_024), ("x", 10))) == ("checkpoint", 1_024, 1_024)
        assert found(cache, text(("c", 3_328), ("x", 1))) == ("checkpoint", 3_328, 3_328)


def test_hyb_15_same_prompt_must_be_stable() -> None:
    """One prompt four times, others between: what the kernels may read is the same each time, at
    the resume point as at the end."""
    layout = layout_of(16, {"swa": 1024})
    prompt = text(("p", 1_464))
    with opened(layout, 110, 5, with_bytes=True, max_sequences=1) as cache:
        ends, resumes, resumed_at = [], [], []
        for run in range(4):
            sequence = begin(cache, prompt)
            resumed_at.append(sequence.resumed_at)
            if run:
                resumes.append(readable(cache, sequence))
            compute(cache, sequence)
            ends.append(readable(cache, sequence))
            sequence.finish()
            serve(cache, text((f"other {run}", 200)))  # pages are used again
        assert resumed_at == [0, 1_456, 1_456, 1_456]
        assert ends == [ends[0]] * 4
        assert resumes == [resumes[0]] * 3
        assert cache.stats().blocks["indexed"] < 91 + 4 * 12  # some were evicted


def test_hyb_16_stale_table_entries() -> None:
    """Twelve blocks of 16 and a window of 64. A window slides in its ring: one page a sequence, so
    the six blocks' worth of rows that slid out have no entry to go stale."""
    layout = layout_of(16, {"swa": 64}, rollback_tokens=1)
    with opened(layout, 12, 12, admission=None) as cache:
        tables = BlockTables(cache, max_batch=3, max_blocks=12)

        def fill(*ids: int) -> tuple[list[list[int]], list[int]]:
            tables.fill(list(ids))
            return tables.blocks["full"].tolist(), tables.images["swa"].tolist()

        a = cache.begin(cache.match(asked(text(("p", 160)))))
        cache.reserve([a.id], [64]).commit()
        rows, images = fill(a.id)
        own = cache.block_slots(a, "full").tolist()
        assert rows[0] == own + [0] * 8
        cache.reserve([a.id], [96]).commit()
        rows, images = fill(a.id)
        assert (160 - layout.group("swa").rows) // 16 == 6
        assert images == [cache.image_slots(a)["swa"], 0, 0]

        b = cache.begin(cache.match(asked(text(("q", 80)))))
        step = cache.reserve([b.id], [80])
        assert step.refused.tolist() == [3]  # a's pages are a's
        step.abort()
        rows, images = fill(a.id, b.id)
        assert rows[1:] == [[0] * 12] * 2
        cache.reserve([b.id], [32]).commit()
        rows, images = fill(a.id, b.id)
        assert rows[1] == cache.block_slots(b, "full").tolist() + [0] * 10
        assert not set(rows[0][:10]) & set(rows[1][:2])
        assert len({*images[:2]}) == 2

        freed = cache.block_slots(a, "full").tolist()
        a.cancel()
        rows, images = fill(0, b.id)
        assert (rows[0], images[0]) == ([0] * 12, 0)
        cache.reserve([b.id], [48]).commit()
        a2 = cache.begin(cache.match(asked(text(("r", 64)))))
        step = cache.reserve([a2.id], [64])
        assert step.refused.tolist() == [0]
        rows, images = fill(a2.id, b.id)
        step.commit()
        for row, sequence in zip(rows, (a2, b), strict=False):
            mine = cache.block_slots(sequence, "full").tolist()
            assert row == mine + [0] * (12 - len(mine))
        assert (len(rows[0]) - rows[0].count(0), rows[2]) == (4, [0] * 12)
        assert set(rows[0]) & set(freed)  # pages were used again, and only in one row
        assert not (set(rows[0]) & set(rows[1])) - {0}
        for sequence in (a2, b):
            sequence.finish()


@pytest.mark.parametrize("stops", [True, False], ids=["captures", "one step"])
def test_hyb_19_exact_hit_on_untrimmable(stops: bool) -> None:
    """The whole prompt is cached, and a ring cannot be trimmed by one: the hit is a block less,
    with the state of just that position."""
    layout = layout_of(64, {"swa": 128})
    prompt = text(("p", 256))
    with opened(layout, 20, 12, with_bytes=True) as cache:
        if stops:
            serve(cache, prompt)
        else:
            sequence = begin(cache, prompt)
            advance(cache, sequence, prompt)
            sequence.finish()
        plan = cache.match(asked(prompt))
        assert plan.history_tokens == 256
        assert plan.computed_tokens >= 1
        again = begin(cache, prompt)
        if stops:
            assert (again.plan.source, again.position) == ("checkpoint", 192)
            assert state_position(cache, plan.checkpoint[0]) == 192
        else:
            assert again.position == 0  # a checkpoint at 256 alone is not resumed before it
        advance(cache, again, prompt)
        again.finish()
        # with one more token the state at the end is the right one
        assert found(cache, text(("p", 256), ("x", 1))) == ("checkpoint", 256, 256)


def test_hyb_20_entry_mutated_by_reader() -> None:
    """Blocks of one token. Two readers of one prefix: what one generates is never the other's."""
    layout = layout_of(1, {"swa": 16})
    prefix = text(("p", 100))
    with opened(layout, 260, 14, with_bytes=True) as cache:
        serve(cache, prefix)
        plan = cache.match(asked(text(("p", 100), ("x", 1))))
        pages = {"full": cache.tables.blocks.pages[plan.blocks[:, 0], 0]}
        pages["swa"] = cache.tables.images.pages[[plan.checkpoint[0]], 0]
        assert len(pages["full"]) == 100

        def stored() -> dict[str, bytes]:
            return {name: view_of(cache, name)[slots].tobytes() for name, slots in pages.items()}

        before = stored()
        a = begin(cache, text(("p", 100), ("x", 1)))
        assert a.position == 100
        assert not cache.writable("full", pages["full"])
        for length in range(1, 51):
            advance(cache, a, text(("p", 100), ("x", length)))
        assert stored() == before
        b = begin(cache, text(("p", 100), ("y", 1)))
        assert (b.plan.source, b.position) == ("checkpoint", 100)
        for length in range(1, 11):
            advance(cache, b, text(("p", 100), ("y", length)))
            advance(cache, a, text(("p", 100), ("x", 50 + length)))
        assert stored() == before
        for reader in (a, b):
            reader.finish()
        again = begin(cache, text(("p", 100), ("z", 1)))
        assert again.position == 100
        again.cancel()
