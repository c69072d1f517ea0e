"""kvstrata: the KV-cache layer of an LLM engine whose model mixes attention types.

Names are imported when first used: the command line, and whoever needs only a layout, does not
pay for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvstrata.core.abi import Abi, Rope, abi_of
    from kvstrata.core.admission_terms import AdmissionConfig
    from kvstrata.core.errors import (
        AdmissionDenied,
        CapacityError,
        ConfigError,
        CorruptSegment,
        Deferred,
        DirectoryBusy,
        InvariantViolation,
        KvstrataError,
        LogError,
        LogPoisoned,
        OutOfPages,
        SequenceGap,
        StaleLease,
        StoreError,
        UnknownSchema,
    )
    from kvstrata.core.layout import CacheLayout, Component, GroupSpec, Kind, preset
    from kvstrata.core.planner import Candidate, Rates
    from kvstrata.core.ranks import LocalRank, RankGroup
    from kvstrata.eventstore.log.config import Durability, LogConfig
    from kvstrata.kernels.copy import copy_pages
    from kvstrata.kernels.gather import gather_entries, gather_ring
    from kvstrata.kernels.pools import PoolSet
    from kvstrata.kernels.scatter import scatter_entries, scatter_ring
    from kvstrata.tiers.config import TierConfig, TiersConfig

    from .block_tables import BlockTables
    from .commanding import CommandingStatus, CommandSource
    from .comparing import Comparison
    from .config import CacheConfig
    from .explaining import Explanation
    from .handles import Lease, Sequence, Step, Suspended, Transfer
    from .manager import CacheManager
    from .recovery import Recovery
    from .requests import Load, Plan, Request
    from .scrubbing import ScrubProgress, ScrubReport
    from .statistics import PoolStatistics, Statistics
    from .tiering_stats import TieringStats
    from .topology import PoolAddress, Topology
    from .validating import Verdict

_HOMES = {
    "kvstrata.core.abi": ("Abi", "Rope", "abi_of"),
    "kvstrata.core.admission_terms": ("AdmissionConfig",),
    "kvstrata.core.errors": (
        "AdmissionDenied",
        "CapacityError",
        "ConfigError",
        "CorruptSegment",
        "Deferred",
        "DirectoryBusy",
        "InvariantViolation",
        "KvstrataError",
        "LogError",
        "LogPoisoned",
        "OutOfPages",
        "SequenceGap",
        "StaleLease",
        "StoreError",
        "UnknownSchema",
    ),
    "kvstrata.core.layout": ("CacheLayout", "Component", "GroupSpec", "Kind", "preset"),
    "kvstrata.core.planner": ("Candidate", "Rates"),
    "kvstrata.core.ranks": ("LocalRank", "RankGroup"),
    "kvstrata.eventstore.log.config": ("Durability", "LogConfig"),
    "kvstrata.kernels.copy": ("copy_pages",),
    "kvstrata.kernels.gather": ("gather_entries", "gather_ring"),
    "kvstrata.kernels.pools": ("PoolSet",),
    "kvstrata.kernels.scatter": ("scatter_entries", "scatter_ring"),
    "kvstrata.block_tables": ("BlockTables",),
    "kvstrata.commanding": ("CommandSource", "CommandingStatus"),
    "kvstrata.comparing": ("Comparison",),
    "kvstrata.config": ("CacheConfig",),
    "kvstrata.explaining": ("Explanation",),
    "kvstrata.handles": ("Lease", "Sequence", "Step", "Suspended", "Transfer"),
    "kvstrata.manager": ("CacheManager",),
    "kvstrata.recovery": ("Recovery",),
    "kvstrata.requests": ("Load", "Plan", "Request"),
    "kvstrata.scrubbing": ("ScrubProgress", "ScrubReport"),
    "kvstrata.statistics": ("PoolStatistics", "Statistics"),
    "kvstrata.tiering_stats": ("TieringStats",),
    "kvstrata.tiers.config": ("TierConfig", "TiersConfig"),
    "kvstrata.topology": ("PoolAddress", "Topology"),
    "kvstrata.validating": ("Verdict",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Abi",
    "AdmissionConfig",
    "AdmissionDenied",
    "BlockTables",
    "CacheConfig",
    "CacheLayout",
    "CacheManager",
    "Candidate",
    "CapacityError",
    "CommandSource",
    "CommandingStatus",
    "Comparison",
    "Component",
    "ConfigError",
    "CorruptSegment",
    "Deferred",
    "DirectoryBusy",
    "Durability",
    "Explanation",
    "GroupSpec",
    "InvariantViolation",
    "Kind",
    "KvstrataError",
    "Lease",
    "Load",
    "LocalRank",
    "LogConfig",
    "LogError",
    "LogPoisoned",
    "OutOfPages",
    "Plan",
    "PoolAddress",
    "PoolSet",
    "PoolStatistics",
    "RankGroup",
    "Rates",
    "Recovery",
    "Request",
    "Rope",
    "ScrubProgress",
    "ScrubReport",
    "Sequence",
    "SequenceGap",
    "StaleLease",
    "Statistics",
    "Step",
    "StoreError",
    "Suspended",
    "TierConfig",
    "TieringStats",
    "TiersConfig",
    "Topology",
    "Transfer",
    "UnknownSchema",
    "Verdict",
    "abi_of",
    "copy_pages",
    "gather_entries",
    "gather_ring",
    "preset",
    "scatter_entries",
    "scatter_ring",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'kvstrata' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
