"""The catalogue as a server uses it: it may be away, and comes back by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kvstrata.core.errors import StoreError
from kvstrata.eventstore.history.catalogue import Catalogue

__all__ = ["CataloguePlace"]

_RETRY_S: Final = 2.0
_PATIENCE_S: Final = 0.5
_AT_ONCE: Final = 16
"""Requests that may use it at once: one that hangs must not hold up those that do without it."""


class CataloguePlace:
    """Opens a catalogue when it is first needed, and again after it was away.

    Args:
        url: of the catalogue.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._places = threading.Semaphore(_AT_ONCE)
        self._catalogue: Catalogue | None = None
        self._error: StoreError | None = None
        self._failed_s = 0.0

    def get(self) -> Catalogue:
        """The catalogue.

        Raises:
            StoreError: it cannot be opened now; who asks again soon is told the same at once.
            ConfigError: no such URL.
        """
        if not self._lock.acquire(timeout=_PATIENCE_S):
            raise StoreError("catalogue: expected it open, found it being opened; ask again")
        try:
            if self._catalogue is not None:
                if self._catalogue.is_current:
                    return self._catalogue
                self._catalogue.close()  # its file is gone, or another stands there
                self._catalogue = None
            if self._error is not None and time.monotonic() - self._failed_s < _RETRY_S:
                raise StoreError(str(self._error))
            try:
                self._catalogue = Catalogue.open(self._url)
            except StoreError as error:
                self._error, self._failed_s = error, time.monotonic()
                raise
            return self._catalogue
        finally:
            self._lock.release()

    @contextmanager
    def used(self) -> Iterator[Catalogue]:
        """The catalogue, for one request. Raises as :meth:`get`, and where too many wait for it."""
        if not self._places.acquire(timeout=_PATIENCE_S):
            raise StoreError(
                f"catalogue: expected fewer than {_AT_ONCE} requests that wait for it, found more; "
                "is its database stuck?"
            )
        try:
            yield self.get()
        finally:
            self._places.release()

    def close(self) -> None:
        """Close it."""
        with self._lock:
            if self._catalogue is not None:
                self._catalogue.close()
                self._catalogue = None
