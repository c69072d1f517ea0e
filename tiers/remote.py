"""An S3 bucket, or what speaks its language, as a store; docs/format.md.

A conditional put makes an object whole or not at all and overwrites none. :mod:`.remote_settings`
says where endpoint and credentials come from. Nothing is asked of the bucket before the first
call; it must exist. Bad objects are copied to ``quarantine/``: let a lifecycle rule of the bucket
empty it.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

import numpy as np
import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from kvstrata.core.errors import ConfigError
from kvstrata.core.events import Reason
from kvstrata.core.words import Arena

from .remote_settings import endpoint_of, fault_of, profile_settings
from .schema import parse_name
from .store import Buffer, Bytes, Flags, StoredObject, StoreFault, check_name

__all__ = ["RemoteStore"]

_OBJECTS: Final = "objects/"
_QUARANTINE: Final = "quarantine/"
_CHUNK_BYTES: Final = 1 << 20
_LISTED_AT_ONCE: Final = 1000
_CONNECT_S: Final = 5.0
_FIRST_PAUSE: Final = timedelta(seconds=0.1)
_LONGEST_PAUSE: Final = timedelta(seconds=2)
_FAILURES: Final = (BaseError, OSError, ValueError)


class RemoteStore:
    """Objects in a bucket.

    Args:
        url: ``s3://bucket/prefix``.
        timeout_s: how long one request may take, answer included. It may be tried again within
            so many seconds from the first try, so a call ends after at most twice as long.
        retries: how often a request is tried again: refused connections, server errors, and
            time-outs where repeating is safe.

    Raises:
        ConfigError: no bucket, a bad time-out, or a profile without keys.
    """

    def __init__(self, url: str, timeout_s: float = 30.0, retries: int = 3) -> None:
        parts = urlsplit(url)
        prefix = parts.path.strip("/")
        if not parts.netloc or parts.query or parts.fragment:
            raise ConfigError(f"expected s3://bucket/prefix, found {url!r}")
        if not timeout_s > 0 or retries < 0:
            raise ConfigError(
                f"expected timeout_s above 0 and retries of at least 0 for {url}, found "
                f"{timeout_s} and {retries}"
            )
        self.url = f"s3://{parts.netloc}/{prefix}".rstrip("/")
        settings = profile_settings(os.environ)
        is_plain = endpoint_of(settings, os.environ).startswith("http://")
        timeout = timedelta(seconds=timeout_s)
        try:
            self._store = S3Store(
                parts.netloc,
                prefix=prefix or None,
                config=settings,
                client_options={
                    "timeout": timeout,
                    "connect_timeout": min(timeout, timedelta(seconds=_CONNECT_S)),
                    "allow_http": is_plain,
                },
                retry_config={
                    "max_retries": retries,
                    "retry_timeout": timeout,
                    "backoff": {
                        "init_backoff": _FIRST_PAUSE,
                        "max_backoff": _LONGEST_PAUSE,
                        "base": 2,
                    },
                },
            )
        except _FAILURES as error:
            raise ConfigError(f"expected usable settings for {url}, found {error}") from error

    def put(self, name: str, parts: Sequence[Bytes], settle: bool = True) -> bool:
        """See :meth:`.Store.put`; one request, so at most 5 GiB; durable when it is answered."""
        path = _OBJECTS + check_name(name)
        views = [memoryview(part).cast("B") for part in parts]
        try:
            obstore.put(self._store, path, views, mode="create", use_multipart=False)
        except AlreadyExistsError as error:
            # Also said (409) of two puts in conflict, of which the other may still fail.
            if self.size(name) is None:
                message = f"{name}: another put is under way"
                raise StoreFault(Reason.STORE_FAILED, message) from error
            return False
        except FileNotFoundError as error:
            message = f"{name}: expected the bucket of {self.url} to exist"
            raise StoreFault(Reason.STORE_FAILED, message, is_outage=True) from error
        except _FAILURES as error:
            raise fault_of(error, name) from error
        return True

    def put_many(self, names: Sequence[str], objects: Sequence[Sequence[Bytes]]) -> Flags:
        """See :meth:`.Store.put_many`; there is no quicker way."""
        return np.zeros(len(names), dtype=np.bool_)

    def settle(self, names: Iterable[str]) -> None:
        """See :meth:`.Store.settle`; all that was put is durable."""

    def read(self, name: str, parts: Sequence[Buffer]) -> None:
        """See :meth:`.Store.read`; each byte is copied once, from the answer's chunk."""
        path = _OBJECTS + check_name(name)
        expected = sum(part.nbytes for part in parts)
        with _mapped(name):
            result = obstore.get(self._store, path)
            found = result.meta["size"]
            if found == expected:
                found = _scatter(result.stream(min_chunk_size=_CHUNK_BYTES), parts)
        if found != expected:
            cut = found < expected
            reason = Reason.OBJECT_TRUNCATED if cut else Reason.OBJECT_TOO_LONG
            raise StoreFault(reason, f"{name}: expected {expected} bytes, found {found}")

    def read_many(
        self, names: Sequence[str], parts: Arena, num_bytes: int, checksums: Arena
    ) -> Flags:
        """See :meth:`.Store.read_many`; there is no quicker way."""
        return np.zeros(len(names), dtype=np.bool_)

    def size(self, name: str) -> int | None:
        """See :meth:`.Store.size`."""
        path = _OBJECTS + check_name(name)
        try:
            return obstore.head(self._store, path)["size"]
        except FileNotFoundError:
            return None
        except _FAILURES as error:
            raise fault_of(error, name) from error

    def objects(self, namespace: str | None = None) -> Iterator[StoredObject]:
        """See :meth:`.Store.objects`."""
        prefix = _OBJECTS + (namespace or "")
        with _mapped(prefix):
            listing = obstore.list(self._store, prefix, chunk_size=_LISTED_AT_ONCE)
        while True:
            with _mapped(prefix):
                batch = next(listing, None)
            if batch is None:
                return
            for found in batch:
                name = found["path"].removeprefix(_OBJECTS)
                if parse_name(name) is not None:
                    yield StoredObject(name, found["size"], found["last_modified"].timestamp())

    def head_bytes(self, name: str, count: int) -> bytes:
        """See :meth:`.Store.head_bytes`."""
        path = _OBJECTS + check_name(name)
        try:
            with _mapped(name):
                return bytes(obstore.get_range(self._store, path, start=0, length=count))
        except StoreFault as fault:
            if fault.reason is Reason.OBJECT_TRUNCATED:
                return b""  # an object of no bytes has no first byte
            raise

    def delete(self, name: str) -> bool:
        """See :meth:`.Store.delete`; the bucket does not tell, so it is asked before."""
        if self.size(name) is None:
            return False
        with _mapped(name):
            obstore.delete(self._store, _OBJECTS + name)
        return True

    def set_aside(self, name: str) -> None:
        """See :meth:`.Store.set_aside`."""
        path = _OBJECTS + check_name(name)
        try:
            with _mapped(name):
                obstore.copy(self._store, path, _QUARANTINE + name)
                obstore.delete(self._store, path)
        except StoreFault as fault:
            if fault.reason is not Reason.OBJECT_MISSING:
                raise

    def collect(self, older_than_s: float = 3600) -> int:
        """See :meth:`.Store.collect`; a conditional put leaves nothing half written."""
        return 0

    def claim(self, name: str, timeout_s: float) -> AbstractContextManager[bool]:
        """See :meth:`.Store.claim`; a bucket belongs to no node, so everybody has it."""
        check_name(name)
        return nullcontext(True)

    def close(self) -> None:
        """Connections close when they are idle."""


@contextmanager
def _mapped(name: str) -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        raise fault_of(error, name) from error


def _scatter(chunks: Iterator[bytes], parts: Sequence[Buffer]) -> int:
    """Copy chunks into parts one after the other.

    Returns:
        Bytes that came, of which those beyond the last part are dropped.
    """
    views = [memoryview(part).cast("B") for part in reversed(parts) if part.nbytes]
    found = 0
    for chunk in chunks:
        found += len(chunk)
        rest = memoryview(chunk)
        while len(rest) and views:
            view = views.pop()
            count = min(len(rest), len(view))
            view[:count] = rest[:count]
            rest = rest[count:]
            if count < len(view):
                views.append(view[count:])
    return found
