"""Tiers as the commands see them: where they are, what their catalogue is, how far the work is.

Everything of ``kvstrata.tiers`` is imported on use: it may need what only the extra brings.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote, urlsplit

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kvstrata.core.errors import ConfigError

if TYPE_CHECKING:
    from kvstrata.tiers.catalogue import Catalogue
    from kvstrata.tiers.store import Store

__all__ = ["CatalogueOption", "Place", "StoreArgument", "TierOption", "bar", "the_extra"]

_OF_THE_EXTRA = ("alembic", "obstore", "sqlalchemy")

StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="A tier's folder, or s3://bucket/prefix.")
]
CatalogueOption = Annotated[
    str | None,
    typer.Option(
        "--catalogue",
        metavar="URL",
        help="sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE; "
        "STORE/catalogue.sqlite by default.",
    ),
]
TierOption = Annotated[
    str | None,
    typer.Option(
        "--tier",
        metavar="NAME",
        help="The tier's name in the catalogue; by default host (in /dev/shm), disk or remote.",
    ),
]


@dataclass(frozen=True)
class Place:
    """A tier's place.

    Attributes:
        url: as it was given; a folder is absolute.
        folder: of a tier in a folder; otherwise None.
    """

    url: str
    folder: Path | None

    @classmethod
    def of(cls, text: str) -> Place:
        """Read what was given as STORE.

        Raises:
            ConfigError: a folder that no tier has been in.
        """
        parts = urlsplit(text)
        if parts.scheme not in ("", "file"):
            return cls(text, None)
        folder = Path(unquote(parts.path) if parts.scheme else text).absolute()
        if not (folder / "objects").is_dir():
            found = "one without" if folder.is_dir() else "no folder"
            raise ConfigError(
                f"{folder}: expected a tier's folder, with a folder objects, found {found}"
            )
        return cls(str(folder), folder)

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The objects."""
        with the_extra():
            from kvstrata.tiers.store import open_store

            store = open_store(self.url)
        with closing(store):
            yield store

    @contextmanager
    def catalogue(self, given: str | None) -> Iterator[Catalogue]:
        """The index of the objects.

        Args:
            given: its URL, or None for the file in the folder.

        Raises:
            ConfigError: none was given and the place is no folder.
        """
        with the_extra():
            from kvstrata.tiers.catalogue import Catalogue

            catalogue = Catalogue.open(self._catalogue_url(given))
        with closing(catalogue):
            yield catalogue

    def has_catalogue(self, given: str | None) -> bool:
        """Whether there is one to look at; one that was given is taken to be there."""
        file = self._catalogue_file
        return given is not None or (file is not None and file.is_file())

    def tier(self, given: str | None) -> str:
        """The tier's name in the catalogue."""
        if given is not None:
            return given
        from kvstrata.tiers.config import TierConfig

        return TierConfig(self.url).name

    @property
    def _catalogue_file(self) -> Path | None:
        return None if self.folder is None else self.folder / "catalogue.sqlite"

    def _catalogue_url(self, given: str | None) -> str:
        if given is not None:
            return given
        if self._catalogue_file is None:
            raise ConfigError(f"--catalogue: expected a URL, since {self.url} is no folder")
        return f"sqlite:///{self._catalogue_file}"


@contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere; it is told how many of how many are done."""
    columns = (
        TextColumn("{task.description}", markup=False),  # a folder's name may look like markup
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console, hidden = Console(stderr=True), not sys.stderr.isatty()
    with Progress(*columns, console=console, disable=hidden, transient=True) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def the_extra() -> Iterator[None]:
    """Imports of what the extra brings: where it is missing, an error that names it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _OF_THE_EXTRA:
            raise ConfigError(
                "expected the extra \"tiers\": pip install 'kvstrata[tiers]'"
            ) from error
        raise
