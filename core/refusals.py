"""Why apply refused an event. Live, any is a bug; in replay, the log is not this arena's."""

from typing import Final

__all__ = ["REFUSALS", "refusal_text"]

OK: Final = 0
SEQUENCE_GAP: Final = -1
ILLEGAL_TRANSITION: Final = -2
STATE_DIFFERS: Final = -3
WRONG_GENERATION: Final = -4
NO_SUCH_GROUP: Final = -5
NO_SUCH_PAGE: Final = -6
NO_SUCH_UNIT: Final = -7
NO_SUCH_HOLDER: Final = -8
NOT_OWNED: Final = -9
OUT_OF_ORDER: Final = -10
ALREADY_PRESENT: Final = -11
KEY_DIFFERS: Final = -12
STILL_PINNED: Final = -13
NOT_FOUND: Final = -14
REFERENCES_DIFFER: Final = -15
TAINTED: Final = -16

REFUSALS: Final[dict[int, str]] = {
    OK: "applied",
    SEQUENCE_GAP: "the event's seqno does not follow the last one applied",
    ILLEGAL_TRANSITION: "the transition table has no such transition",
    STATE_DIFFERS: "the state after the transition is not the one the event names",
    WRONG_GENERATION: "the event's generation is not the page's",
    NO_SUCH_GROUP: "the layout has no such group",
    NO_SUCH_PAGE: "the pool has no such page",
    NO_SUCH_UNIT: "there is no such block or image",
    NO_SUCH_HOLDER: "there is no such sequence or lease",
    NOT_OWNED: "the page or unit belongs to another",
    OUT_OF_ORDER: "blocks come and go at the end of a sequence only",
    ALREADY_PRESENT: "the unit has a page of this group already",
    KEY_DIFFERS: "pages of one unit carry different keys",
    STILL_PINNED: "a lease still pins it",
    NOT_FOUND: "the index does not hold the key",
    TAINTED: "its sequence stands on a page that failed validation",
    REFERENCES_DIFFER: "the references after the transition are not those the event names",
}


def refusal_text(code: int) -> str:
    """One sentence for a refusal code."""
    return REFUSALS.get(code, f"unknown refusal {code}")
