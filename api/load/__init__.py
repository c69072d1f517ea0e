"""An endless load on a real engine, with an API beside it and faults where they are wanted."""

from .config import LoadConfig
from .running import run_load

__all__ = ["LoadConfig", "run_load"]
