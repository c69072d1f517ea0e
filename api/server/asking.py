"""Parameters that several routes share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query

from .cursors import PATTERN, decode_cursor, encode_cursor
from .problems import Problem
from .state import Server

__all__ = ["GroupName", "KeyPath", "Limit", "PageSlot", "Paging", "RowId"]

_GROUP = "^[a-z0-9][a-z0-9_.-]*$"

GroupName = Annotated[
    str, Path(pattern=_GROUP, max_length=128, description="Name of a group.", examples=["c4"])
]
PageSlot = Annotated[
    int, Path(ge=0, lt=2**31, description="Slot in the group's pool.", examples=[17])
]
KeyPath = Annotated[
    str,
    Path(
        pattern="^[0-9a-f]{32}$",
        description="Key of the segment's prefix.",
        examples=["3f9c2b7a5d10e4c88f61a2b3c4d5e6f7"],
    ),
]
RowId = Annotated[int, Path(ge=1, lt=2**53)]


class Paging:
    """How many rows are asked for, and from where on.

    Attributes:
        limit: at most so many.
    """

    def __init__(
        self,
        server: Server,
        limit: Annotated[int, Query(ge=1, le=1000, description="Rows at most.")] = 100,
        cursor: Annotated[
            str | None,
            Query(pattern=PATTERN, description="What an answer gave as next; none to begin."),
        ] = None,
    ) -> None:
        if limit > server.settings.max_limit:
            raise Problem(422, f"limit: expected at most {server.settings.max_limit}, found more")
        self.limit = limit
        self._cursor = cursor
        self._epoch = server.epoch

    def start(self, question: str) -> int:
        """Where to go on; 0 to begin.

        Args:
            question: all that decides which rows there are.

        Raises:
            Problem: the cursor is of another question, or log (409).
        """
        if self._cursor is None:
            return 0
        return decode_cursor(self._cursor, f"{self._epoch} {question}")

    def next(self, place: int, question: str) -> str | None:
        """The cursor to go on with, None where there are no more rows.

        Args:
            place: where; 0 for nowhere.
            question: as for :meth:`start`.
        """
        return encode_cursor(place, f"{self._epoch} {question}") if place else None


Limit = Annotated[Paging, Depends()]
"""How many rows, and from where on."""
