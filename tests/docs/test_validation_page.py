"""docs/validation.md names every check there is, and events.md every reason."""

from kvstrata.core.checks import CHECKS, layer_of
from kvstrata.core.events import Reason
from tools import validation_page


def test_the_table_of_checks_is_that_of_the_code() -> None:
    text = validation_page.PAGE.read_text(encoding="utf-8")
    assert validation_page.render(text) == text, "run python -m tools.validation_page"


def test_every_reason_of_validation_has_a_check_and_one_layer() -> None:
    reasons = {reason for reason in Reason if 64 <= reason < 128}
    assert {check.reason for check in CHECKS} == reasons
    for check in CHECKS:
        assert layer_of(check.reason) == check.layer
