"""Cases ADM: what may begin, and what waits meanwhile."""

import pytest

from kvstrata import CacheManager, Sequence
from kvstrata.core.errors import Deferred
from tests.face.support import pages_in

from .support import Tokens, advance, asked, begin, compute, layout_of, opened, serve, text

FULL = layout_of(16)


def generate(cache: CacheManager, sequence: Sequence, name: str, blocks: int) -> None:
    """Output of so many blocks."""
    prompt = sequence.plan.request.tokens
    for index in range(1, blocks + 1):
        advance(cache, sequence, with_output(prompt, name, 16 * index))


def with_output(prompt: Tokens, name: str, length: int) -> Tokens:
    found: Tokens = text((name, len(prompt)), (f"{name} out", length))
    assert (found[: len(prompt)] == prompt).all()
    return found


@pytest.mark.parametrize("reused", [0, 20], ids=["nothing reused", "20 blocks reused"])
@pytest.mark.parametrize("holds", ["the promise alone", "some blocks", "all blocks"])
def test_adm_01_mutual_wait(reused: int, holds: str) -> None:
    """Of 100 blocks two requests need 60 each, of which 20 are output; 20 of the prompt's are here
    already where the case loads them from the host. Each fits alone, both together do not."""
    asks = {
        name: asked(text((name, 40 * 16)), max_new_tokens=20 * 16, deadline_s=60.0)
        for name in ("a", "b")
    }
    with opened(FULL, 100, with_bytes=True, max_sequences=2) as cache:
        if reused:
            for name in asks:
                serve(cache, text((name, reused * 16)))
        a = cache.begin(cache.match(asks["a"]))
        assert a.protected == reused * 16
        if holds == "some blocks":
            advance(cache, a, text(("a", 30 * 16)))
        elif holds == "all blocks":
            compute(cache, a)
            generate(cache, a, "a", 20)
        before = pages_in(cache, "full"), cache.stats().blocks
        for _ in range(3):
            with pytest.raises(Deferred, match="admission"):
                cache.begin(cache.match(asks["b"]))
            # while it waits it holds nothing: no page, no pin, no row
            assert (pages_in(cache, "full"), cache.stats().blocks) == before
            assert (cache.stats().sequences, cache.stats().leases) == (1, 0)
            assert before[0].get("sealed_pinned", 0) == a.position // 16
        assert cache.stats().events["admission_deferred"] == 1

        if holds != "all blocks":
            compute(cache, a)
            generate(cache, a, "a", 20)  # what was promised is there
        assert len(cache.block_slots(a, "full")) == 60
        a.finish()
        b = cache.begin(cache.match(asks["b"]))
        assert b.protected == reused * 16
        compute(cache, b)
        generate(cache, b, "b", 20)
        b.finish()
        assert cache.stats().events["sequence_finished"] == 2 + (2 if reused else 0)
        assert "reserved" not in pages_in(cache, "full")
        assert begin(cache, text(("b", 40 * 16), ("b out", 20 * 16), ("x", 1))).position == 960


def test_adm_01_a_loop_of_both_comes_to_its_end() -> None:
    """Whoever is deferred asks again while the other goes on; none waits for ever."""
    wanted = {
        name: asked(text((name, 40 * 16)), max_new_tokens=20 * 16) for name in ("a", "b", "c")
    }
    with opened(FULL, 100, with_bytes=True) as cache:
        running: dict[str, Sequence] = {}
        finished, order = [], list(wanted)
        for _ in range(400):
            for name in [name for name in order if name not in running and name not in finished]:
                try:
                    running[name] = cache.begin(cache.match(wanted[name]))
                except Deferred:
                    break
            assert len(running) <= 1
            for name, sequence in list(running.items()):
                done = sequence.position + 16
                tokens = text((name, 40 * 16), (f"{name} out", 20 * 16))
                advance(cache, sequence, tokens[:done])
                if done == len(tokens):
                    sequence.finish()
                    del running[name]
                    finished.append(name)
            if len(finished) == len(wanted):
                break
        assert finished == order
