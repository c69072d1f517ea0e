"""Verbs of short histories, on the reference and the manager: all of one text."""

from .pair import Both, Pair, Pause, Prompt

TEXT = tuple(number % 3 for number in range(60))


def begin(pair: Pair, num_tokens: int, at: int | None = None) -> Both:
    sequence = pair.begin(pair.match(Prompt(TEXT[:num_tokens], "one", at=at)))
    assert sequence
    return sequence


def run(pair: Pair, sequence: Both, *sizes: int, accepted: int | None = None) -> None:
    """Compute steps of these sizes; their ids are those of the text."""
    for size in sizes:
        start = sequence.reference.position
        step = pair.reserve([(sequence, size)])
        assert step
        kept = None if accepted is None else [accepted]
        pair.commit(step, kept, [list(TEXT[start : start + size])])


def leave(pair: Pair, num_tokens: int) -> None:
    """Blocks of so many tokens, and the checkpoints at their end."""
    sequence = begin(pair, num_tokens)
    run(pair, sequence, num_tokens - sequence.reference.position)
    pair.finish(sequence)


def suspend(pair: Pair, sequence: Both) -> Pause:
    pause = pair.suspend(sequence)
    assert pause
    return pause


def resume(pair: Pair, pause: Pause, num_tokens: int) -> Both:
    sequence = pair.resume(pause, TEXT[:num_tokens])
    assert sequence
    return sequence


def quarantine(pair: Pair, number: int, *, is_block: bool) -> None:
    """The first page of a unit is found to be bad."""
    units = pair.reference.blocks if is_block else pair.reference.images
    group = units.groups[0]
    pair.quarantine(group, units[number].pages[group])


def forget_checkpoints(pair: Pair) -> None:
    for image in list(pair.reference.images.index.values()):
        quarantine(pair, image, is_block=False)
