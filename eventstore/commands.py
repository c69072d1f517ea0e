"""Operator commands as the log knows them: kinds and outcomes by number.

The numbers stand in COMMAND_TAKEN and COMMAND_ENDED events and are never given another meaning.
"""

from enum import IntEnum
from typing import Final

__all__ = ["COMMAND_MEANINGS", "CommandKind", "CommandOutcome"]


class CommandKind(IntEnum):
    """What an operator can ask an engine for."""

    QUARANTINE = 1
    UNQUARANTINE = 2
    DROP_PREFIX = 3
    PIN = 4
    UNPIN = 5
    SCRUB = 6
    SNAPSHOT = 7
    DRAIN = 8
    REPORT_DIVERGENCE = 9


class CommandOutcome(IntEnum):
    """How a command ended; 0 in COMMAND_TAKEN."""

    NONE = 0
    DONE = 1
    REFUSED = 2
    FAILED = 3


COMMAND_MEANINGS: Final = {
    CommandKind.QUARANTINE: "withdraw a sealed page: nothing hits it any more",
    CommandKind.UNQUARANTINE: "give a quarantined page back to its pool, once only pins hold it",
    CommandKind.DROP_PREFIX: "evict a prefix and all that hangs from it, where nobody uses it",
    CommandKind.PIN: "keep a prefix from being evicted while this engine lives",
    CommandKind.UNPIN: "end the pins of a prefix",
    CommandKind.SCRUB: "checksum sealed pages now",
    CommandKind.SNAPSHOT: "store the tables now, so that a replay begins there",
    CommandKind.DRAIN: "let no new request in, or in again",
    CommandKind.REPORT_DIVERGENCE: "write into the log that a reader's tables went another way",
}
"""Each kind in a sentence, for people."""
