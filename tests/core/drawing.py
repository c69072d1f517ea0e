"""Arguments of a random history's actions: prompts, sizes of steps, what is accepted of them."""

from random import Random

from ..reference.values import Row
from .pair import Both, Pair, Pause, Prompt

WORDS = 3
"""Token ids in use: so few that prefixes meet by chance."""


def draw_prompt(pair: Pair, rng: Random) -> Prompt:
    """Something new, or the beginning or the continuation of a text seen before."""
    size = pair.case.block_tokens
    longest = pair.case.max_blocks_per_sequence * size - size // 2
    text: tuple[int, ...] = ()
    if pair.texts and rng.random() < 0.85:
        text = rng.choice(pair.texts)
        if rng.random() < 0.25:
            text = text[: rng.randint(1, len(text))]
    if not text or rng.random() < 0.3:
        text += tuple(
            rng.randrange(WORDS) for _ in range(rng.randint(1, pair.case.new_text_blocks * size))
        )
    if rng.random() < 0.4 and len(text) > size:
        text = text[: len(text) // size * size]
    text = text[:longest]
    remember(pair, text)
    return Prompt(
        tokens=text,
        model="one" if rng.random() < 0.95 else "two",
        extras={0: b"picture"} if rng.random() < 0.05 and len(text) >= size else {},
        max_resume=rng.randrange(len(text) + 1) if rng.random() < 0.1 else None,
    )


def remember(pair: Pair, text: tuple[int, ...]) -> None:
    """Keep a few texts to begin others with."""
    if text not in pair.texts:
        pair.texts.append(text)
    del pair.texts[:-6]


def draw_tokens(pair: Pair, sequence: Both, rng: Random) -> int:
    """A step's size: all that is left of the prompt, a chunk, speculation, decoding."""
    case, s = pair.case, sequence.reference
    left = s.prompt_tokens - pair.reference.reserved_position(s)
    if left > 0 and rng.random() < 0.8:
        return min(left, rng.choice((left, left, case.block_tokens, case.block_tokens + 1)))
    few = rng.randint(1, max(1, min(case.rollback_tokens, 4)))
    return rng.choice((1, few, few, rng.randint(1, 2 * case.block_tokens)))


def written_tokens(pair: Pair, step: Both, rng: Random) -> list[list[int]] | None:
    """Ids whose rows the step wrote: the prompt's, then anything; perhaps none in a prompt."""
    rows = [row for row in step.reference.rows if row]
    inside = all(row.start + row.num_tokens <= row.sequence.prompt_tokens for row in rows)
    if inside and rng.random() < 0.5:
        return None
    written = []
    for row in step.reference.rows:
        ids: list[int] = []
        if row is not None:
            prompt = row.sequence.tokens[: row.sequence.prompt_tokens]
            ids = prompt[row.start : row.start + row.num_tokens]
            ids += [rng.randrange(WORDS) for _ in range(row.num_tokens - len(ids))]
        written.append(ids)
    return written


def accepted_tokens(pair: Pair, row: Row | None, rng: Random) -> int:
    if row is None:
        return 0
    least = max(0, pair.reference.least_accepted(row)) if row.switched else 0
    return rng.choice((0, rng.randint(least, row.num_tokens), row.num_tokens))


def tokens_from(pair: Pair, pause: Pause, rng: Random) -> tuple[int, ...]:
    """All tokens of a suspended request so far, mostly with some that came since."""
    tokens = pause.tokens
    if rng.random() < 0.7:
        tokens += tuple(rng.randrange(WORDS) for _ in range(rng.randint(1, pair.case.block_tokens)))
    if rng.random() < 0.1:
        tokens = tokens[: rng.randint(1, len(tokens))]
    longest = pair.case.max_blocks_per_sequence * pair.case.block_tokens
    return tokens[:longest]


def has_room(pair: Pair, rng: Random) -> bool:
    """Whether another sequence may run; now and then one is begun all the same, and refused."""
    return bool(pair.reference.free_sequences) or rng.random() < 0.15
