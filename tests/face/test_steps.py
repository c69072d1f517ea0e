"""Steps: in order, once, and only what fits; each refusal says why and changes nothing."""

from typing import Any

import numpy as np
import pytest

from kvstrata import CacheManager, ConfigError, KvstrataError, Sequence, StaleLease

from .support import check_sums, hit, memory_manager, prefill, refused, request, tokens_of

PROMPT = request("steps", 40)
LONG, BUSY, PAGES = 1, 2, 3


@pytest.fixture
def sequence(cache: CacheManager) -> Sequence:
    return cache.begin(cache.match(PROMPT))


def test_commit_twice(cache: CacheManager, sequence: Sequence) -> None:
    step = cache.reserve([sequence.id], [20])
    step.commit()
    for call in (step.commit, step.abort, lambda: step.image_slots(0)):
        with refused(cache, StaleLease, "step 1 has ended; reserve a new one"):
            call()
    assert sequence.position == 20


def test_abort_then_commit(cache: CacheManager, sequence: Sequence) -> None:
    step = cache.reserve([sequence.id], [20])
    step.abort()
    for call in (step.commit, step.abort):
        with refused(cache, StaleLease, "step 1 has ended"):
            call()
    assert sequence.position == 0


def test_commit_out_of_order(cache: CacheManager, sequence: Sequence) -> None:
    first = cache.reserve([sequence.id], [2])
    second = cache.reserve([sequence.id], [2])
    with refused(cache, StaleLease, "step 2: steps commit in order, expected step 1 first"):
        second.commit()
    first.commit()
    second.commit()
    assert sequence.position == 4


def test_an_abort_takes_the_later_steps_along(cache: CacheManager, sequence: Sequence) -> None:
    first = cache.reserve([sequence.id], [2])
    second = cache.reserve([sequence.id], [1])
    other = cache.begin(cache.match(request("another", 20)))
    third = cache.reserve([other.id], [20])
    first.commit()
    second.abort()
    with refused(cache, StaleLease, "step 3 has ended"):
        third.commit()
    assert (sequence.position, other.position) == (2, 0)
    cache.reserve([sequence.id, other.id], [38, 20]).commit()
    check_sums(cache)


WRONG_RESERVES: dict[str, tuple[Any, Any, type[KvstrataError], str]] = {
    "no such row": ([0xFFFF], [1], StaleLease, "ids of running sequences, found 0xffff"),
    "row 0": ([1 << 16], [1], StaleLease, "found 0x10000"),
    "a free row": ([7 << 16 | 2], [1], StaleLease, "found 0x70002"),
    "another counter": ([99 << 16 | 1], [1], StaleLease, "found 0x630001"),
    "a lease's row": ([5], [1], StaleLease, "found 0x5"),
    "negative": ([-1], [1], StaleLease, "found -0x1"),
    "one good, one not": (["id", 3], [1, 1], StaleLease, "found 0x3"),
    "twice": (["id", "id"], [1, 1], ConfigError, "each sequence once in a step, found .* twice"),
    "no tokens": (["id"], [0], ConfigError, "num_tokens: expected at least 1 .* found 0"),
    "less": (["id"], [-3], ConfigError, "num_tokens: expected at least 1 .* found -3"),
    "too few numbers": (["id"], [], ConfigError, r"found shapes \(1,\) and \(0,\)"),
    "too many numbers": (["id"], [1, 1], ConfigError, r"found shapes \(1,\) and \(2,\)"),
    "no sequence": ([], [], ConfigError, "at least one"),
    "a table": ([["id"]], [[1]], ConfigError, r"sequences: .* of shape \(1, 1\)"),
    "one number": ("id", 1, ConfigError, r"sequences: .* of shape \(\)"),
}


def with_id(value: Any, identity: int) -> Any:
    if isinstance(value, list):
        return [with_id(each, identity) for each in value]
    return identity if value == "id" else value


@pytest.mark.parametrize("name", WRONG_RESERVES)
def test_a_reserve_that_does_not_fit(cache: CacheManager, sequence: Sequence, name: str) -> None:
    ids, tokens, error, message = WRONG_RESERVES[name]
    with refused(cache, error, message):
        cache.reserve(with_id(ids, sequence.id), tokens)
    cache.reserve([sequence.id], [40]).commit()
    assert sequence.position == 40
    check_sums(cache)


WRONG_COMMITS: dict[str, tuple[dict[str, Any], str]] = {
    "more than reserved": ({"accepted": [21, 3]}, "reserved 20 tokens; expected .* found 21"),
    "negative": ({"accepted": [20, -1]}, "reserved 3 tokens; .* found -1 accepted"),
    "rolled back too far": ({"accepted": [15, 3]}, "at most 4 rolled back .* found 15 accepted"),
    "too few numbers": ({"accepted": [20]}, r"accepted: expected 2 numbers, found \(1,\)"),
    "a table": ({"accepted": [[20, 3]]}, r"accepted: .* of shape \(1, 2\)"),
    "too few tokens": ({"tokens": tokens_of("steps", 20)}, "tokens: "),
    "too many tokens": (
        {"tokens": np.concatenate([tokens_of("steps", 20), tokens_of("short", 4)])},
        "tokens: expected 23 ids, .* found 24",
    ),
    "two lists": ({"tokens": [[1, 2], [3, 4]]}, r"tokens: expected a list .* of shape \(2, 2\)"),
    "another prompt's": (
        {"tokens": np.concatenate([tokens_of("other", 20), tokens_of("short", 3)])},
        "inside its prompt: expected the prompt's tokens from position 0 on, found others",
    ),
    "the last one differs": (
        {"tokens": np.concatenate([tokens_of("steps", 20), tokens_of("short", 2), [5000]])},
        "inside its prompt",
    ),
}


@pytest.mark.parametrize("name", WRONG_COMMITS)
def test_a_commit_that_does_not_fit(cache: CacheManager, sequence: Sequence, name: str) -> None:
    other = cache.begin(cache.match(request("short", 10)))
    step = cache.reserve([sequence.id, other.id], [20, 3])
    arguments, message = WRONG_COMMITS[name]
    with refused(cache, ConfigError, message):
        step.commit(**arguments)
    assert (sequence.position, other.position) == (0, 0)
    step.commit(tokens=np.concatenate([tokens_of("steps", 20), tokens_of("short", 3)]))
    assert (sequence.position, other.position) == (20, 3)
    check_sums(cache)


def test_output_needs_its_tokens(cache: CacheManager) -> None:
    sequence = prefill(cache, PROMPT)
    step = cache.reserve([sequence.id], [2])
    with refused(cache, ConfigError, "has passed its prompt: expected the ids .* found none"):
        step.commit()
    step.commit(accepted=[0])
    cache.reserve([sequence.id], [2]).commit(tokens=[1, 2])
    assert sequence.position == 42


def test_tokens_across_the_prompt_s_end(cache: CacheManager, sequence: Sequence) -> None:
    cache.reserve([sequence.id], [38]).commit()
    step = cache.reserve([sequence.id], [4])
    with refused(cache, ConfigError, "from position 38 on, found others"):
        step.commit(tokens=[1, 2, 3, 4])
    step.commit(tokens=[*PROMPT.tokens[38:], 3, 4])
    assert sequence.position == 42


def test_rejected_tokens_leave_no_trace(cache: CacheManager) -> None:
    """What was rolled back does not count for the key of the block it stood in."""
    sequence = prefill(cache, PROMPT)
    for token in range(7):
        cache.reserve([sequence.id], [3]).commit(accepted=[1], tokens=[token, 900, 901])
    cache.reserve([sequence.id], [1]).commit(tokens=[7])
    sequence.finish()
    whole = np.concatenate([PROMPT.tokens, np.arange(9, dtype=np.int32)])
    assert hit(cache, request("", tokens=whole)) == (48, 48)


def test_the_batch_goes_on_without_whom_it_refuses() -> None:
    cache = memory_manager(slots={"full": 9, "swa": 20}, max_tokens_per_sequence=512)
    sequences = [cache.begin(cache.match(request(name, 10))) for name in "abcd"]
    ids = [sequence.id for sequence in sequences]
    before = cache.digest()
    everyone = cache.reserve(ids, [513, 600, 1000, 520])
    assert everyone.refused.tolist() == [LONG] * 4
    assert everyone.num_tokens.tolist() == [0] * 4
    assert cache.digest() == before
    everyone.commit()
    step = cache.reserve(ids, [80, 160, 513, 47])
    assert step.refused.tolist() == [0, PAGES, LONG, 0]
    more = cache.reserve([ids[0], ids[3]], [5, 1])
    assert more.refused.tolist() == [BUSY, 0]
    step.abort()
    assert [sequence.position for sequence in sequences] == [0] * 4
    check_sums(cache)


def test_a_void_row_commits_as_nothing(cache: CacheManager) -> None:
    """A step reserved on tokens that were then rejected."""
    sequence = prefill(cache, PROMPT)
    first = cache.reserve([sequence.id], [2])
    second = cache.reserve([sequence.id], [2])
    first.commit(accepted=[1], tokens=[1, 2])
    second.commit(tokens=[3, 4])
    assert second.accepted.tolist() == [0]
    assert sequence.position == 41
    check_sums(cache)
