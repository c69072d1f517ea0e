"""Driving a cache manager with a request trace; what has been done is read off the log."""

from .outcome import Outcome
from .replaying import Replay

__all__ = ["Outcome", "Replay"]
