"""Every exception kvstrata raises.

KvstrataError
├── ConfigError            a setting, layout or argument is not usable
├── CapacityError          there is no room now
│   ├── OutOfPages         pools hold too few free and evictable pages
│   ├── Deferred           not now; says when to ask again
│   └── AdmissionDenied    the admission cap says no
├── StaleLease             a handle outlived what it names
├── LogError               the event log
│   ├── SequenceGap        an event's seqno does not follow the one before
│   ├── CorruptSegment     durable bytes are damaged
│   ├── LogPoisoned        a write or sync failed, or the log epoch has ended
│   ├── UnknownSchema      written by another format or schema version
│   └── DirectoryBusy      another process writes this directory
├── StoreError             an object store
└── InvariantViolation     a bug: a rule that always holds did not

A miss is a value, never an exception. Messages say what was expected, what was found, and
what to do.
"""

__all__ = [
    "AdmissionDenied",
    "CapacityError",
    "ConfigError",
    "CorruptSegment",
    "Deferred",
    "DirectoryBusy",
    "InvariantViolation",
    "KvstrataError",
    "LogError",
    "LogPoisoned",
    "OutOfPages",
    "SequenceGap",
    "StaleLease",
    "StoreError",
    "UnknownSchema",
]


class KvstrataError(Exception):
    """Base of every exception raised by kvstrata on purpose."""


class ConfigError(KvstrataError):
    """A setting, layout or argument is not usable; nothing was changed."""


class CapacityError(KvstrataError):
    """There is no room for the request now; nothing was changed."""


class OutOfPages(CapacityError):
    """The pools hold too few free and evictable pages."""


class Deferred(CapacityError):
    """Not now: ask again with the same request; nothing was changed and nothing is held.

    Attributes:
        retry_after_s: when to ask again, in seconds from now.
        ahead: requests that wait in front of it.
        limit: name of what it lacks.
    """

    def __init__(
        self, message: str, retry_after_s: float = 0.0, ahead: int = 0, limit: str = ""
    ) -> None:
        super().__init__(message)
        self.limit = limit
        self.retry_after_s = retry_after_s
        self.ahead = ahead


class AdmissionDenied(CapacityError):
    """The admission cap refused the request.

    Attributes:
        retry_after_s: when it may be asked again, in seconds from now; None where it never fits.
        limit: name of what it lacks.
    """

    def __init__(self, message: str, retry_after_s: float | None = None, limit: str = "") -> None:
        super().__init__(message)
        self.limit = limit
        self.retry_after_s = retry_after_s


class StaleLease(KvstrataError):
    """A plan, lease, step or sequence handle outlived what it names."""


class LogError(KvstrataError):
    """Base of the event log's errors."""


class SequenceGap(LogError):
    """An event's seqno does not follow the one before it."""


class CorruptSegment(LogError):
    """Bytes that were durable are damaged; only an explicit repair touches them."""


class LogPoisoned(LogError):
    """A write or sync failed, or the log epoch has ended: nothing more becomes durable."""


class UnknownSchema(LogError):
    """The directory was written by another format or schema version."""


class DirectoryBusy(LogError):
    """Another process holds the directory's lock."""


class StoreError(KvstrataError):
    """An object store could not do what was asked."""


class InvariantViolation(KvstrataError):
    """A rule that always holds did not: a bug. The manager mutates no more."""
