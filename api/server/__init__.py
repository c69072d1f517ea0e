"""The admin API: what a follower knows, over HTTP."""

from .app import create_app
from .settings import ServerSettings

__all__ = ["ServerSettings", "create_app"]
