"""The catalogue of history: incidents, operator commands, audit, and what lay in directories."""

from .catalogue import Catalogue, default_url
from .rows import (
    AuditRow,
    Command,
    CommandState,
    Incident,
    IncidentState,
    LayoutRow,
    NoteRow,
    SegmentRow,
    SnapshotRow,
    Who,
)
from .source import CatalogueCommands

__all__ = [
    "AuditRow",
    "Catalogue",
    "CatalogueCommands",
    "Command",
    "CommandState",
    "Incident",
    "IncidentState",
    "LayoutRow",
    "NoteRow",
    "SegmentRow",
    "SnapshotRow",
    "Who",
    "default_url",
]
