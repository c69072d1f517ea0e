"""The labels a metric may carry: few, each with a closed set of values.

There is no label for a block, a page, a request, a key or a tenant: their number has no bound, and
the API answers about single ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kvstrata.core.checks import LAYERS
from kvstrata.core.events import EventType, Reason
from kvstrata.core.groups import HISTORY_KINDS, STATE_KINDS
from kvstrata.core.states import PageState

__all__ = [
    "LABELS",
    "LAYER_NAMES",
    "PAGE_STATES",
    "REASON_NAMES",
    "SEALED_STATES",
    "TYPE_NAMES",
    "Label",
]

SEALED_STATES: Final = ("sealed_idle", "sealed_pinned")
"""A sealed page is evictable, or somebody reads it."""
PAGE_STATES: Final = (
    *(state.name.lower() for state in PageState if state is not PageState.SEALED),
    *SEALED_STATES,
)
LAYER_NAMES: Final = {number: name.lower().replace(" ", "_") for number, name in LAYERS.items()}
"""Layers of validation by their number in the log."""
REASON_NAMES: Final = {int(reason): reason.name.lower() for reason in Reason}
TYPE_NAMES: Final = {int(kind): kind.name.lower() for kind in EventType}


@dataclass(frozen=True)
class Label:
    """One label.

    Attributes:
        name: of the label.
        help: what its value says.
        values: all it can be; empty where the layout, or the configuration, names them.
    """

    name: str
    help: str
    values: tuple[str, ...] = ()


def _by_name(*labels: Label) -> Mapping[str, Label]:
    return {label.name: label for label in labels}


LABELS: Final = _by_name(
    Label("pool", "the group's name in the layout"),
    Label(
        "kind",
        "what the pool's pages are",
        tuple(sorted(kind.name.lower() for kind in HISTORY_KINDS | STATE_KINDS)),
    ),
    Label("state", "of a page; sealed pages are idle (evictable) or pinned", PAGE_STATES),
    Label("unit", "what is found, leased and evicted whole", ("block", "checkpoint")),
    Label("use", "of a unit", ("free", "held", "idle")),
    Label("layer", "of validation", tuple(LAYER_NAMES.values())),
    Label("reason", "why; docs/events.md explains each", tuple(REASON_NAMES.values())),
    Label(
        "tier",
        "the configured name of a tier; device is the pools, unknown where an event names none",
    ),
    Label(
        "source",
        "where a prompt's tokens came from; suspended: computed by the request itself before it "
        "was suspended, so no hit",
        ("computed", "device", "suspended", "tier"),
    ),
    Label("decision", "of admission", ("deferred", "denied", "granted_after_wait")),
    Label("drift", "which of the three was found", ("bytes", "numeric", "projection")),
    Label("result", "of a comparison", ("different", "equal")),
    Label("outcome", "what became of a page in a crash", ("kept", "lost")),
    Label("type", "of an event; docs/events.md explains each", tuple(TYPE_NAMES.values())),
    Label("model_layer", "number of the model's layer"),
    Label("version", "of kvstrata"),
    Label("schema", "version of the event schema"),
    Label("layout", "the layout's name"),
    Label("digest", "of the layout"),
    Label("block_tokens", "tokens of one block"),
)
"""Every label by its name."""
