"""Cases HYB: groups of different lifecycles that must agree on one resume point.

Groups of the cases have block sizes of their own; here a block is one span of tokens for all of
them, a window group keeps one ring image a sequence, and what a later request resumes on is a
checkpoint: a sealed copy of every group's image at one position.
"""

import numpy as np
import pytest

from kvstrata import CapacityError, ConfigError, preset
from kvstrata.block_tables import BlockTables
from kvstrata.core.layout import render_totals

from .support import (
    advance,
    asked,
    begin,
    check_hit,
    compute,
    found,
    layout_of,
    marks_of,
    opened,
    prefill,
    readable,
    serve,
    state_position,
    text,
    view_of,
    write,
)


def test_hyb_01_hit_lost_on_reissue() -> None:
    """A full group and a window of 128 in blocks of 256; between two requests of one prefix of
    16000 tokens another one takes pages."""
    layout = layout_of(256, {"swa": 128})
    with opened(layout, 200, 20, max_tokens_per_sequence=32_768) as cache:
        first = text(("p", 16_000), ("x", 7))
        serve(cache, first)
        keyed = cache.match(asked(first)).blocks[:, 0].tolist()
        indexed = cache.stats().blocks["indexed"]
        assert (len(keyed), indexed) == (62, 62)
        for number in range(3):
            free = cache.stats().blocks["free"]
            other = prefill(cache, text((f"z{number}", 300)))
            taken = cache.tables.blocks.pages[keyed, 0]
            assert not set(cache.block_slots(other, "full").tolist()) & set(taken.tolist())
            other.finish()
            indexed += 1
            assert cache.stats().blocks["indexed"] == indexed  # no key was dropped
            assert cache.stats().blocks["free"] == free - 1
            again = text(("p", 16_000), (f"y{number}", 7))
            assert found(cache, again) == ("checkpoint", 15_872, 15_872)
            assert serve(cache, again).resumed_at == 15_872


def test_hyb_01_keys_go_only_when_nothing_else_is_free() -> None:
    layout = layout_of(16, {"swa": 16})
    with opened(layout, 12, 30) as cache:
        serve(cache, text(("p", 70)))
        for number in range(4):
            before = cache.stats().blocks
            serve(cache, text((f"z{number}", 40)))
            after = cache.stats().blocks
            evicted = before["indexed"] + 2 - after["indexed"]
            assert evicted == max(3 - before["free"], 0)
            if before["free"] >= 3:
                assert found(cache, text(("p", 70))) == ("checkpoint", 64, 64)


@pytest.mark.parametrize("length", [2048, 129, 257, 300, 1000, 4095])
def test_hyb_02_granularity_collapse(length: int) -> None:
    """The groups of DeepSeek-V4: ratios 4 and 128, tails, a window of 128. The unit of a hit is
    the lcm of the ratios, whatever the pages hold."""
    layout = preset("deepseek-v4-flash")
    assert layout.hit_unit == layout.block_tokens == layout.lcm == 128
    assert ("effective hit unit", "128 tokens") in render_totals(layout)
    assert "effective hit unit: 128 tokens" in str(layout)
    with opened(layout, 40, 12) as cache:
        prompt = text(("p", length))
        serve(cache, prompt)
        hit = (length - 1) // 128 * 128
        assert hit == 1920 or length != 2048
        assert found(cache, prompt) == ("checkpoint", hit, hit)
        check_hit(cache, again := begin(cache, prompt))
        assert state_position(cache, again.plan.checkpoint[0]) == hit
        again.cancel()


@pytest.mark.parametrize(
    ("spare_images", "source"), [(6, "checkpoint"), (0, "replay")], ids=["kept", "not kept"]
)
def test_hyb_03_window_from_wrong_owner(spare_images: int, source: str) -> None:
    """One sequence at a time, so that all of them write the same ring. Either the window's rows
    are kept by content, or they are computed again; those of another request are never served."""
    layout = layout_of(256, {"swa": 128}, {"c4": 4})
    with opened(layout, 80, 2 + spare_images, with_bytes=True, max_sequences=1) as cache:
        prompt = text(("p", 7_700))
        serve(cache, prompt)
        other = prefill(cache, text(("z", 500)))
        strangers = view_of(cache, "swa")[cache.image_slots(other)["swa"]].copy()
        other.finish()

        again = begin(cache, prompt)  # compares every row the kernels may read
        assert (again.plan.source, again.plan.reused_tokens) == (source, 7_680)
        served = view_of(cache, "swa")[cache.image_slots(again)["swa"]]
        if source == "replay":
            assert again.plan.reused_tokens - again.plan.resume_at >= 128
            assert readable(cache, again)["swa"] == b""
        else:
            assert not (served[:, None] == strangers[None]).all(axis=2).any()
        compute(cache, again)
        served = view_of(cache, "swa")[cache.image_slots(again)["swa"]]
        rows = np.arange(7_700 - 127, 7_700) % len(served)
        assert not (served[rows, None] == strangers[None]).all(axis=2).any()
        again.finish()


def test_hyb_05_dense_windows_evict_history() -> None:
    """Eight lanes of 32768 tokens: windows have pools of their own and keep two images a lane, so
    they cannot push history out."""
    windows = {"swa64": 128, "st4": 8, "st8": 128}
    layout = layout_of(256, windows)
    lanes = [text((f"lane {number}", 32_768)) for number in range(8)]
    with opened(layout, 8 * 128, 8 * 2 + 16, max_sequences=8) as cache:
        running = [cache.begin(cache.match(asked(lane))) for lane in lanes]
        ends = running[0].captures
        assert ends == (32_512, 32_768)
        for start, end in ((0, 16_384), (16_384, 32_512), (32_512, 32_768)):
            step = cache.reserve([lane.id for lane in running], [end - start] * 8)
            assert not step.refused.any()
            step.commit()
        for lane in running:
            lane.finish()
        assert cache.stats().blocks["indexed"] == 8 * 128
        assert sum(pool.slots - 1 for pool in cache.stats().pools) <= 3_000
        for group, window in windows.items():
            (pool,) = [pool for pool in cache.stats().pools if pool.group == group]
            kept = pool.pages["sealed_idle"] + pool.pages["sealed_pinned"]
            assert kept <= 8 * 2 * (-(-window // 64) + 1)
            assert kept == 8 * 2
        for lane in lanes:
            assert found(cache, lane) == ("checkpoint", 32_512, 32_512)
            sequence = begin(cache, lane)
            assert sequence.position == 32_512
            sequence.cancel()


@pytest.mark.parametrize("group", ["swa64", "st4", "st8"])
def test_hyb_05_a_window_that_is_absent_is_not_ignored(group: str) -> None:
    """Where the page of one window group is lost, the minimum is not taken without it: its rows
    are computed again, or nothing is reused."""
    layout = layout_of(64, {"swa64": 128, "st4": 8, "st8": 128})
    prompt = text(("p", 1024))
    with opened(layout, 40, 20, with_bytes=True) as cache:
        serve(cache, prompt)
        plan = cache.match(asked(prompt))
        assert (plan.source, plan.resume_at) == ("checkpoint", 960)
        part = [state.name for state in layout.state_groups].index(group)
        slot = int(cache.tables.images.pages[plan.checkpoint[0], part])
        view_of(cache, group)[slot] ^= 1
        again = prefill(cache, prompt)  # every byte it reads is right
        assert (again.plan.source, again.plan.reused_tokens) == ("replay", 960)
        assert again.plan.resume_at <= 960 - layout.replay_tokens
        assert cache.stats().validation_failures[f"0/checksum_mismatch/{group}"] == 1
        again.finish()
        short = text(("p", 330))  # too short to compute the windows again
        assert found(cache, short) == ("cold", 0, 0)


def test_hyb_07_index_in_wrong_unit() -> None:
    """A block of 1600 tokens beside a group of ratio 4, at most 16000 tokens: tables are indexed
    by block, ten columns wide, and never by the unit of the smallest group."""
    layout = layout_of(1600, {"ring": 16}, {"state": 1600, "c4": 4})
    prompt = text(("p", 3_200))
    with opened(layout, 12, 12, with_bytes=True, max_tokens_per_sequence=16_000) as cache:
        tables = BlockTables(cache, max_batch=2, max_blocks=10)
        serve(cache, prompt)
        resumed = begin(cache, text(("p", 3_200), ("x", 10)))
        assert resumed.position == 3_200
        column = (resumed.position - 1) // layout.block_tokens
        assert column == 1
        tables.fill([resumed.id])
        for group in layout.history_groups:
            table = tables.blocks[group.name].numpy()
            assert table.shape == (2, 10)
            assert (
                table[0, : column + 1].tolist() == cache.block_slots(resumed, group.name).tolist()
            )
            assert not table[0, column + 1 :].any()
            slot = int(table[0, column])
            last = marks_of(group.name, prompt)[-1]
            assert (view_of(cache, group.name)[slot, -1] == last).all()
        advance(cache, resumed, text(("p", 3_200), ("x", 10)))

        narrow = BlockTables(cache, max_batch=2, max_blocks=2)
        with pytest.raises(CapacityError, match="expected at most 2 blocks"):
            narrow.fill([resumed.id])
        assert not any(table.any() for table in narrow.blocks.values())
        slots = cache.stats().pools[0].slots
        for outside in (0, slots, 799):
            with pytest.raises(ConfigError, match="expected a slot in 1 to"):
                cache.page_generation("state", outside)
            assert not cache.writable("state", [outside])
        resumed.finish()
        short = begin(cache, text(("p", 1_600), ("x", 10)))
        assert short.position == 1_600  # its bytes are those after 1600 tokens, not after 3200
        short.cancel()


def test_hyb_08_state_from_wrong_position() -> None:
    """Two prompts of 100 and 150 tokens in one batch, in blocks of 64: a step commits state only
    under the keys of each sequence's own tokens, never of the flattened batch."""
    layout = layout_of(64, {"swa": 16})
    first, second = text(("r1", 100)), text(("r2", 150))
    flat = np.concatenate([first, second])
    with opened(layout, 20, 20, with_bytes=True) as cache:
        running = [cache.begin(cache.match(asked(one))) for one in (first, second)]
        assert [one.captures for one in running] == [(64,), (128,)]
        step = cache.reserve([one.id for one in running], [64, 128])
        for number, tokens in enumerate((first[:64], second[:128])):
            write(cache, running[number], step.image_slots(number), tokens, 0)
        with pytest.raises(ConfigError, match="expected the prompt's tokens from position 0 on"):
            step.commit(tokens=flat[:192])
        assert cache.stats().images["indexed"] == cache.stats().blocks["indexed"] == 0
        assert found(cache, second) == found(cache, flat) == ("cold", 0, 0)
        step.commit(tokens=np.concatenate([first[:64], second[:128]]))

        assert found(cache, second) == ("checkpoint", 128, 128)
        assert found(cache, first) == ("checkpoint", 64, 64)
        # of the flattened batch only what is the first prompt's own prefix
        assert found(cache, flat) == ("checkpoint", 64, 64)
        assert found(cache, text(("r1", 64), ("r2", 128), ("x", 5))) == ("checkpoint", 64, 64)
        for one in (first, second, flat):
            begin(cache, one).cancel()  # the image holds the rows before its own position
        for one in running:
            one.cancel()


def test_hyb_08_output_is_hashed_for_each_sequence() -> None:
    """Tokens beyond the prompts come one sequence after another, and are keyed apart."""
    layout = layout_of(64, {"swa": 16}, rollback_tokens=40)
    first, second = text(("r1", 100)), text(("r2", 150))
    with opened(layout, 20, 20, with_bytes=True) as cache:
        running = [prefill(cache, one) for one in (first, second)]
        out = text(("o1", 28)), text(("o2", 42))
        step = cache.reserve([one.id for one in running], [28, 42])
        whole = [np.concatenate(pair) for pair in zip((first, second), out, strict=True)]
        for number, tokens in enumerate(whole):
            start = running[number].position
            write(cache, running[number], step.image_slots(number), tokens, start)
        step.commit(tokens=np.concatenate(out))
        for one in running:
            one.finish()
        more = [np.append(one, np.int32(1)) for one in whole]
        assert [found(cache, one)[1] for one in more] == [128, 192]
        for one in more:
            begin(cache, one).cancel()


def test_hyb_10_per_group_length_set_independently() -> None:
    """History is here to 1024, the windows only at 768: every group resumes at 768."""
    layout = layout_of(64, {"w512": 512, "w64": 64})
    with opened(layout, 40, 12, with_bytes=True) as cache:
        serve(cache, text(("p", 800)))
        longer = begin(cache, text(("p", 1_064)))
        assert longer.position == 768
        advance(cache, longer, text(("p", 1_064)))  # past the boundary: no checkpoint at 1024
        longer.finish()

        prompt = text(("p", 1_100))
        plan = cache.match(asked(prompt))
        assert plan.history_tokens == 1_024
        assert (plan.source, plan.resume_at, plan.reused_tokens) == ("checkpoint", 768, 768)
        reach = {group.group: group.tokens for group in cache.explain(asked(prompt)).groups}
        assert reach == {"full": 1_024, "w512": 768, "w64": 768}
        sequence = begin(cache, prompt)
        assert sequence.position == state_position(cache, plan.checkpoint[0]) == 768
        assert sequence.protected == len(cache.block_slots(sequence, "full")) * 64 == 768
        assert cache.stats().events["hit_limited"] == 1
        advance(cache, sequence, prompt)
        sequence.finish()
