"""Request traces: the public formats, and one of token ids (docs/traces.md)."""

from .reading import read_trace
from .trace import Trace, TraceRequest

__all__ = ["Trace", "TraceRequest", "read_trace"]
