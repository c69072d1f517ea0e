"""What a query is: its name, what may be set, what it gives, and what it has to read for that."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal

from kvstrata.core.errors import ConfigError
from kvstrata.core.events import EventType

__all__ = ["Column", "Feed", "Parameter", "Query", "Table"]

Value = int | float | str
ParameterType = Literal["int", "float", "text"]

_READERS: Final = {"int": int, "float": float, "text": str}


@dataclass(frozen=True)
class Parameter:
    """A value that whoever asks may set; it is bound, never pasted into the SQL.

    Attributes:
        name: as the SQL names it, behind a dollar sign.
        type: of its values.
        default: where it is not given.
        meaning: in words, with the unit.
        least: of a number.
        most: of a number.
    """

    name: str
    type: ParameterType
    default: Value
    meaning: str
    least: float = 0
    most: float = 1e9

    def read(self, given: object) -> Value:
        """The value of what was given, text from a command line or a URL included.

        Raises:
            ConfigError: it is no such value.
        """
        expected = {"int": "a whole number", "float": "a number", "text": "text"}[self.type]
        try:
            if isinstance(given, bool) or not isinstance(given, int | float | str):
                raise ValueError
            if self.type == "int" and isinstance(given, float) and not given.is_integer():
                raise ValueError
            value: Value = _READERS[self.type](given)
        except (ValueError, OverflowError):
            raise ConfigError(f"{self.name}: expected {expected}, found {given!r}") from None
        if not isinstance(value, str) and not self.least <= value <= self.most:
            raise ConfigError(
                f"{self.name}: expected {expected} from {self.least:g} to {self.most:g}, "
                f"found {given!r}"
            )
        return value


@dataclass(frozen=True)
class Column:
    """A column of the answer.

    Attributes:
        name: as the SQL names it.
        unit: of its values; ``time`` for a moment in UTC, ``name`` for a word, ``1`` for a count
            or a ratio without a unit.
        meaning: in words.
    """

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Feed:
    """What a query reads of the log: all else is left out before SQL sees it.

    Attributes:
        types: of events.
        fields: of the event's head or of the payloads of those types, beside ``seqno``, ``type``
            and ``wall_ns``, which are always there.
        equal: fields of the head that must equal the query's parameter of the same name.
        knows_pages: whether it needs the state of every page where the log begins, and so every
            event from there on.
    """

    types: tuple[EventType, ...]
    fields: tuple[str, ...]
    equal: tuple[str, ...] = ()
    knows_pages: bool = False


@dataclass(frozen=True)
class Query:
    """A question to a log, by name.

    Attributes:
        name: of the query, and of its ``.sql`` file.
        title: what it answers, in a line.
        parameters: what may be set.
        columns: what it gives, in order.
        feed: what it reads.
    """

    name: str
    title: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    feed: Feed

    @property
    def sql(self) -> str:
        """The text of its ``.sql`` file."""
        return (files(__package__) / f"{self.name}.sql").read_text(encoding="utf-8")

    def bind(self, given: Mapping[str, object]) -> dict[str, Value]:
        """A value for every parameter.

        Raises:
            ConfigError: a name that is none of its parameters, or a value that does not fit.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in given:
            if name not in known:
                there_is = ", ".join(known) or "none"
                raise ConfigError(
                    f"query {self.name}: expected parameters among {there_is}; found {name!r}"
                )
        return {
            name: parameter.read(given.get(name, parameter.default))
            for name, parameter in known.items()
        }


@dataclass(frozen=True)
class Table:
    """An answer.

    Attributes:
        columns: what each value of a row is.
        rows: of plain values; moments as text, ISO 8601 in UTC.
        is_cut: whether there were more rows than were asked for.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_cut: bool = False

    def records(self) -> list[dict[str, Any]]:
        """The rows as JSON objects."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]
