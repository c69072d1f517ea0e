"""Questions to a log, by name: SQL over its segments, sealed and open, durable events only."""

from .catalogue import queries
from .query import Column, Parameter, Query, Table
from .running import find_query, run_query

__all__ = ["Column", "Parameter", "Query", "Table", "find_query", "queries", "run_query"]
