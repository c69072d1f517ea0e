"""Explanations: what an engine with the follower's tables would do with a prompt."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvstrata.core.events import FOR_LOAD, EventType
from kvstrata.core.words import TIERS_MASK
from kvstrata.explaining import explain
from kvstrata.requests import Request

from ..explaining import OfChain
from .logreader import Wanted, read_backwards
from .models.work import ExplainRequest
from .problems import Problem
from .state import ServerState, last_seqno

__all__ = ["explain_now"]

_LOOK_AT = 200
_BEGUN = (int(EventType.SEQUENCE_BEGUN),)


def explain_now(server: ServerState, asked: ExplainRequest) -> dict[str, Any]:
    """Explain a prompt.

    Raises:
        Problem: it is longer than this server explains (422), or no sequence tells whose model
            is meant (409).
        ConfigError: it is no prompt.
    """
    most = server.settings.max_explain_tokens
    if len(asked.tokens) > most:
        raise Problem(413, f"tokens: expected at most {most:,}, found {len(asked.tokens):,}")
    tokens = np.array(asked.tokens, dtype=np.int32)
    if asked.model is None:
        request: Request = OfChain(tokens, "", chain=_last_seed(server))
    else:
        tenant = asked.tenant.encode()
        request = Request(tokens, asked.model, asked.weights, asked.adapter, tenant)
    with server.tables() as tables:
        arena, seqno = tables.arena.copy(), last_seqno(tables)
    # Whether a tier answers is not in the log: what is stored counts.
    found = explain(server.layout, arena, request, tiers=lambda: TIERS_MASK)
    return {**found.to_json(), "seqno": seqno}


def _last_seed(server: ServerState) -> bytes:
    """Chain seed of the request that began last."""
    before = server.follower.position().seqno + 1
    while before:
        found = read_backwards(
            server.directory, before, Wanted(_BEGUN), _LOOK_AT, server.settings.scan_events
        )
        requests = found.events[found.events["flags"] & FOR_LOAD == 0]
        if len(requests):
            return bytes(requests[0]["c"].tobytes() + requests[0]["d"].tobytes())
        before = found.next_seqno
    raise Problem(409, "expected a log in which a request began, found none; name the model")
