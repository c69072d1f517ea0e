"""What lower tiers brought for requests that have not begun yet."""

import weakref

from .requests import Request

__all__ = ["Brought"]


class Brought:
    """Remembers, by request, which blocks of its prompt were loaded for it."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[weakref.ref[Request], set[int]]] = {}

    def note(self, request: Request, first: int, num_blocks: int) -> None:
        """Blocks ``[first, first + num_blocks)`` of a request's prompt came from a tier."""
        if num_blocks <= 0:
            return
        key = id(request)
        found = self._blocks.get(key)
        if found is None or found[0]() is not request:
            gone = weakref.ref(request, lambda _: self._blocks.pop(key, None))
            found = self._blocks[key] = gone, set()
        found[1].update(range(first, first + num_blocks))

    def tokens(self, request: Request, below: int, block_tokens: int) -> int:
        """Tokens loaded for a request below a position, those it had computed itself left out."""
        found = self._blocks.get(id(request))
        if found is None or found[0]() is not request:
            return 0
        above = request.computed
        return sum(
            max(min((block + 1) * block_tokens, below) - max(block * block_tokens, above), 0)
            for block in found[1]
        )

    def forget(self, request: Request) -> None:
        """The request has begun, or was withdrawn."""
        self._blocks.pop(id(request), None)
