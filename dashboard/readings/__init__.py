"""Reads the catalogue's values off a follower and its status page."""

from .drift import read_drift
from .engine import StatusCounters, read_engine, read_follower, read_status
from .lag import IndexLag
from .pools import read_pools
from .requests import read_requests
from .sample import Distribution, Sample
from .tiers import read_tiers
from .view import View, take_view

__all__ = [
    "Distribution",
    "IndexLag",
    "Sample",
    "StatusCounters",
    "View",
    "read_drift",
    "read_engine",
    "read_follower",
    "read_pools",
    "read_requests",
    "read_status",
    "read_tiers",
    "take_view",
]
