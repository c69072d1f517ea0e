"""Case RNK-01 further: what stops one rank between match and begin must not leave the others."""

import pytest

from kvstrata import KvstrataError
from kvstrata.core.admission import AdmissionConfig
from kvstrata.core.ranks import RankGroup
from tests.rules import test_ranks
from tests.rules.test_ranks import on_ranks

from .support import asked, layout_of, opened, serve, text


def outcome(group: RankGroup, trouble: str) -> str:
    prompt = text(("p", 800))
    admission = AdmissionConfig() if trouble == "deferred" else None
    with opened(layout_of(128), 14, ranks=group, admission=admission) as cache:
        serve(cache, prompt)
        promise = 1_280 if trouble == "deferred" and group.rank == 2 else 0
        mine = asked(text((f"other {group.rank}", 100)), max_new_tokens=promise)
        other = cache.begin(cache.match(mine))
        plan = cache.match(asked(prompt, max_new_tokens=256))
        if trouble == "stale" and group.rank == 2:
            step = cache.reserve([other.id], [10 * 128])  # it evicts what the plan wants
            assert not step.refused.any()
            step.abort()
        try:
            return f"resumes at {cache.begin(plan).resumed_at}"
        except KvstrataError as error:
            return type(error).__name__


def attempt(group: RankGroup, trouble: str) -> str:
    try:
        return outcome(group, trouble)
    except Exception as error:
        return f"broken: {error}"


@pytest.mark.parametrize("trouble", ["nothing", "stale", "deferred"])
def test_rnk_01_ranks_begin_together_or_not_at_all(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank evicted what all agreed on, or has no room: all are told so, or all agree anew."""
    monkeypatch.setattr(test_ranks, "TIMEOUT_S", 1.0)
    found = on_ranks(4, lambda group: attempt(group, trouble))
    assert len(set(found)) == 1, found
    assert "broken" not in found[0], found
