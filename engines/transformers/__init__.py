"""Adapter to Hugging Face transformers: DeepSeek-V4 with kvstrata's pools as its cache."""

from .cache import KvstrataCache
from .calls import Call
from .comparing import PageComparer
from .engine import Engine, Generation, RunningStep
from .layout import layout_for_model
from .model import build_tiny_model, tiny_config
from .pages import PoolRows
from .stock import CallHistory, replay_stock

__all__ = [
    "Call",
    "CallHistory",
    "Engine",
    "Generation",
    "KvstrataCache",
    "PageComparer",
    "PoolRows",
    "RunningStep",
    "build_tiny_model",
    "layout_for_model",
    "replay_stock",
    "tiny_config",
]
