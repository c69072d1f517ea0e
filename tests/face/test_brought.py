"""What tiers brought is remembered by request, until it begins or is gone."""

import gc

import numpy as np

from kvstrata.brought import Brought

from .support import request


def test_each_token_counts_once() -> None:
    brought, wanted = Brought(), request("a", 100)
    brought.note(wanted, 2, 3)
    brought.note(wanted, 4, 2)
    brought.note(wanted, 9, 0)
    assert brought.tokens(wanted, 100, 16) == 4 * 16
    assert brought.tokens(wanted, 40, 16) == 8
    assert brought.tokens(wanted, 0, 16) == 0
    assert brought.tokens(request("a", 100), 100, 16) == 0
    brought.forget(wanted)
    assert brought.tokens(wanted, 100, 16) == 0


def test_what_it_had_computed_itself_is_its_own() -> None:
    brought = Brought()
    wanted = request("a", 100).continued(np.arange(100, dtype=np.int32), 40)
    brought.note(wanted, 0, 5)
    assert brought.tokens(wanted, 80, 16) == 40
    assert wanted.computed == 40
    assert request("a").computed == 0


def test_a_request_that_is_gone_is_forgotten() -> None:
    brought = Brought()
    for number in range(5):
        brought.note(request(f"gone {number}"), 0, 4)
    gc.collect()
    assert not brought._blocks
