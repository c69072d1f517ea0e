"""Errors of admission carry when to come back, and survive a pickle."""

import pickle

from kvstrata.core.errors import AdmissionDenied, CapacityError, Deferred


def test_deferred_says_when_and_behind_whom() -> None:
    error = Deferred("expected room, found none", retry_after_s=0.5, ahead=3)
    assert isinstance(error, CapacityError)
    assert (str(error), error.retry_after_s, error.ahead) == ("expected room, found none", 0.5, 3)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.retry_after_s, again.ahead) == (str(error), 0.5, 3)


def test_admission_denied_says_whether_to_come_back() -> None:
    assert AdmissionDenied("expected room, found none").retry_after_s is None
    error = AdmissionDenied("expected a place in the queue, found none", retry_after_s=2.0)
    assert (str(error), error.retry_after_s) == ("expected a place in the queue, found none", 2.0)
    assert pickle.loads(pickle.dumps(error)).retry_after_s == 2.0
