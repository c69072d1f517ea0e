"""What a tier's place must be able to do, whatever it is made of.

An object is in a store whole or not at all, and is never overwritten. Stores know names and
bytes; what the bytes mean is the business of :mod:`.format`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import ConfigError, StoreError
from kvstrata.core.events import Reason
from kvstrata.core.words import Arena

from .fields import Bytes
from .schema import parse_name

__all__ = [
    "Buffer",
    "Bytes",
    "Flags",
    "Store",
    "StoreFault",
    "StoredObject",
    "check_name",
    "open_store",
]

Buffer = memoryview
"""Of bytes, C-contiguous, writable where it is read into."""

Flags = npt.NDArray[np.bool_]
"""Of several objects, which were read, or written."""

_SCHEMES: Final = "a folder, file:///folder or s3://bucket/prefix"


class StoreFault(StoreError):
    """A store could not do what was asked.

    Attributes:
        reason: why, as it is logged.
        is_outage: the tier as a whole failed (connection refused, time-out, input/output error,
            disk full), not this one object.
    """

    def __init__(self, reason: Reason, message: str, is_outage: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_outage = is_outage


class StoredObject(NamedTuple):
    """One line of a store's listing; ``modified_s`` is seconds since 1970."""

    name: str
    num_bytes: int
    modified_s: float


class Store(Protocol):
    """A place for objects; every call may come from any thread.

    Names are those of :meth:`.Schema.object_name`; another one is refused by every method
    (StoreFault OBJECT_KEY). Every method raises StoreFault where the place does not answer.
    """

    @property
    def url(self) -> str:
        """Where it is, as :func:`open_store` takes it."""

    def put(self, name: str, parts: Sequence[Bytes], settle: bool = True) -> bool:
        """Store an object.

        Args:
            name: of the object.
            parts: its bytes, one buffer after the other; they must not change meanwhile.
            settle: whether its name is to be durable at once; else only after :meth:`settle`.

        Returns:
            True: it is there now, whole and, where it was to be, durable. False: it was there
            already and was left as it was, durable too.

        Raises:
            StoreFault: it was not stored; nothing of it can be found.
        """

    def put_many(self, names: Sequence[str], objects: Sequence[Sequence[Bytes]]) -> Flags:
        """Store many objects at once, as far as that is quick and plain.

        Args:
            names: n of them, all different.
            objects: n of them: the bytes of each, one buffer after the other; they must not change
                meanwhile.

        Returns:
            bool[n], which were written: they are there now, whole, and their names are durable
            after :meth:`settle`. The others may be there all the same, or another process of this
            node may be at work on them: :meth:`put` tells. A place without a quicker way writes
            none.

        Raises:
            StoreFault: nothing is known to be written.
        """

    def settle(self, names: Iterable[str]) -> None:
        """Make the names of objects durable that were put without: all of them for little more.

        Raises:
            StoreFault: none of them is known to be.
        """

    def read(self, name: str, parts: Sequence[Buffer]) -> None:
        """Fill every part from an object of exactly so many bytes.

        Args:
            name: of the object.
            parts: buffers for its bytes, one after the other.

        Raises:
            StoreFault: OBJECT_MISSING, OBJECT_TRUNCATED, OBJECT_TOO_LONG and others; what the
                parts hold then is undefined.

        Mutates: parts.
        """

    def read_many(
        self, names: Sequence[str], parts: Arena, num_bytes: int, checksums: Arena
    ) -> Flags:
        """Fill the parts of many objects at once, as far as that is quick and plain.

        Args:
            names: n of them.
            parts: int64[n, k, 2], address and length of each object's parts.
            num_bytes: of each object.
            checksums: int64[n, k], filled: the page checksum of each part that was filled.

        Returns:
            bool[n], whose parts were filled from an object of just so many bytes. The others may
            be there all the same: :meth:`read` tells. A place without a quicker way fills none.

        Raises:
            StoreFault: nothing was filled.

        Mutates: the parts' memory, checksums.
        """

    def size(self, name: str) -> int | None:
        """Bytes of an object, None where there is none."""

    def objects(self, namespace: str | None = None) -> Iterator[StoredObject]:
        """All objects, or those of one namespace; what else lies there is passed over."""

    def head_bytes(self, name: str, count: int) -> bytes:
        """The first bytes of an object, fewer where it is shorter."""

    def delete(self, name: str) -> bool:
        """Remove an object; whether it was there."""

    def set_aside(self, name: str) -> None:
        """Make a bad object unfindable and keep it for a look; one that is gone is no error."""

    def collect(self, older_than_s: float = 3600) -> int:
        """Remove what writers that are gone left half written.

        Args:
            older_than_s: age, in seconds, below which nothing is touched.

        Returns:
            How many were removed.
        """

    def claim(self, name: str, timeout_s: float) -> AbstractContextManager[bool]:
        """Be the only one of this node to work on a name, as long as the context lasts.

        Advice only: every other call works with and without. A thread must hold no second claim.

        Args:
            name: of the object.
            timeout_s: how long to wait for another holder.

        Returns:
            A context whose value is False where the wait was in vain.
        """

    def close(self) -> None:
        """Let go of what the store holds open."""


def check_name(name: str) -> str:
    """Refuse what is no object's name, above all one that leads out of the store.

    Returns:
        The name.

    Raises:
        StoreFault: OBJECT_KEY.
    """
    if parse_name(name) is None:
        raise StoreFault(
            Reason.OBJECT_KEY,
            f"expected <namespace>/<2 digits>/<32 digits>.block or .checkpoint, found {name!r}",
        )
    return name


def open_store(url: str, timeout_s: float = 30.0, retries: int = 3) -> Store:
    """Open the store at a URL; a folder is made where there is none.

    Args:
        url: ``/folder``, ``file:///folder`` or ``s3://bucket/prefix``.
        timeout_s: how long a remote request may take.
        retries: how often a remote request is tried again.

    Raises:
        ConfigError: names what is wrong with the URL, the folder or the credentials.
    """
    parts = urlsplit(url)
    if parts.scheme in ("s3", "s3a"):
        try:
            from .remote import RemoteStore
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"expected obstore for {url}, found {error}; pip install 'kvstrata[tiers]'"
            ) from error
        return RemoteStore(url, timeout_s=timeout_s, retries=retries)
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise ConfigError(f"expected file:///folder, found a host in {url}")
    if parts.scheme not in ("", "file") or not parts.path:
        raise ConfigError(f"expected {_SCHEMES}, found {url!r}")
    from .local import LocalStore

    return LocalStore(Path(unquote(parts.path) if parts.scheme else url))
