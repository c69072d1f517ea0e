"""Waiters: once a request, gone with it; and no hit keeps a request from being computed."""

import numpy as np
import pytest

from kvstrata import AdmissionConfig, Deferred
from tests.face.support import memory_manager, prefill, request, serve

from .test_admission import Clock, asks, begin, clock, open_small, waiting

__all__ = ["clock"]


def test_a_suspended_sequence_waits_once(clock: Clock) -> None:
    """However often it asks: it never waits behind itself."""
    cache = open_small()
    suspended = prefill(cache, request("paused", 90)).suspend()
    other = begin(cache, asks("other", 15))
    for _ in range(3):
        with pytest.raises(Deferred):
            cache.resume(suspended, _tokens(suspended))
    assert waiting(cache) == 1
    other.finish()
    clock.now_s += 1.0
    cache.resume(suspended, _tokens(suspended))


def _tokens(suspended: object) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    prompt = suspended.request.tokens  # type: ignore[attr-defined]
    return np.concatenate([prompt, np.zeros(150, dtype=np.int32)])


def test_a_request_that_was_given_up_blocks_nobody(clock: Clock) -> None:
    """Its client went away, and with it its place."""
    cache = open_small()
    other = begin(cache, asks("other", 20))
    with pytest.raises(Deferred):
        begin(cache, asks("given up", 2))
    other.finish()
    clock.now_s += 2.0
    begin(cache, asks("new", 2))


def test_a_quota_below_one_image_does_not_forbid_computing(clock: Clock) -> None:
    """Its hit may not be copied: then it is let in without."""
    quota = AdmissionConfig(tenant_bytes={"small": 100})
    cache = memory_manager(admission=quota)
    serve(cache, request("text", 90, tenant=b"small"))
    begin(cache, request("text", 90, tenant=b"small"))
