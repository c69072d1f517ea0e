"""Explain a prompt from a log directory alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kvstrata import ConfigError, Explanation, Request
from kvstrata.core.events import FOR_LOAD, EventType
from kvstrata.core.words import TIERS_MASK
from kvstrata.eventstore.log import open_replayed, read_events
from kvstrata.explaining import explain

from .directories import LogDirectory

__all__ = ["OfChain", "explain_from_log", "read_tokens"]

Identity = tuple[str, str, str, bytes]


@dataclass(frozen=True)
class OfChain(Request):
    """A request whose chain seed is known, and not what it was made of."""

    chain: bytes = b""

    def seed(self, block_tokens: int) -> bytes:
        """The seed that is known."""
        return self.chain


def explain_from_log(
    log: LogDirectory,
    shared_memory_root: Path,
    tokens: npt.NDArray[np.int32],
    identity: Identity | None,
) -> Explanation:
    """What an engine that had the tables of this log would do with a prompt.

    Args:
        log: the directory.
        shared_memory_root: where its ring is.
        tokens: int32[n], the prompt.
        identity: model, weights, adapter and tenant; None for those of the last sequence.

    Raises:
        ConfigError: no sequence ever began, so that there is no last one.
        CorruptSegment: acknowledged events are damaged or gone.
    """
    arena, _ = open_replayed(log.path, shared_memory_root)
    if identity is None:
        request: Request = OfChain(tokens, "", chain=_last_seed(log))
    else:
        model, weights, adapter, tenant = identity
        request = Request(tokens, model, weights, adapter, tenant)
    # Whether a tier answers is not in the log: what is stored counts.
    return explain(log.layout, arena, request, tiers=lambda: TIERS_MASK)


def _last_seed(log: LogDirectory) -> bytes:
    """Chain seed of the sequence that began last."""
    seed = b""
    for events in read_events(log.path, log.first_seqno):
        is_request = events["flags"] & FOR_LOAD == 0
        begun = np.flatnonzero((events["type"] == EventType.SEQUENCE_BEGUN) & is_request)
        if len(begun):
            last = events[begun[-1]]
            seed = last["c"].tobytes() + last["d"].tobytes()
    if not seed:
        raise ConfigError(
            f"{log.path}: expected a log in which a sequence began, found none; name the request's "
            "model with --model"
        )
    return seed


def read_tokens(file: Path) -> npt.NDArray[np.int32]:
    """Token ids from a file.

    Args:
        file: a JSON list, numbers with spaces, commas or line ends between, or ``.npy``.

    Raises:
        ConfigError: it holds something else.
    """
    if file.suffix == ".npy":
        try:
            array = np.load(file, allow_pickle=False)
        except ValueError as error:
            raise ConfigError(f"{file}: expected a .npy array, found {error}") from error
        return Request(array, "").tokens
    try:
        text = file.read_text(encoding="utf-8").strip()
        if text.startswith("["):
            found = json.loads(text)
        else:
            found = [int(token) for token in text.replace(",", " ").split()]
    except ValueError as error:
        raise ConfigError(f"{file}: expected token ids, found {error}") from error
    for token in found:
        if type(token) is not int:
            raise ConfigError(f"{file}: expected token ids, found {token!r}")
        if not 0 <= token < 2**31:
            raise ConfigError(f"{file}: expected ids from 0 to 2**31 - 1, found {token}")
    if not found:
        raise ConfigError(f"{file}: expected token ids, found none")
    return Request(np.array(found, dtype=np.int64), "").tokens
