"""The app: routes behind the gate. To be served by itself or mounted in an engine's own server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from fastapi import Depends, FastAPI

from kvstrata.dashboard.exporter import Exporter
from kvstrata.eventstore.history.catalogue import default_url
from kvstrata.eventstore.history.follower import Follower
from kvstrata.eventstore.log.tmpfs import DEFAULT_ROOT

from .access import Access
from .clock import EventClock
from .gate import Gate
from .keeper import Keeper
from .openapi import document
from .place import CataloguePlace
from .problems import add_handlers
from .routes import blocks, cache, events, health, observe, work
from .settings import ServerSettings
from .state import ServerState
from .strict import refuse_unknown

__all__ = ["create_app"]


def create_app(
    follower: Follower,
    settings: ServerSettings | None = None,
    shared_memory_root: Path = DEFAULT_ROOT,
) -> FastAPI:
    """Make the admin API over a follower.

    Whoever calls it starts the follower and closes it; mounted in another app, that app has to run
    this one's lifespan, or call ``app.state.keeper.start()`` and ``app.state.close()`` itself.

    Args:
        follower: what is served.
        settings: limits, tokens, the catalogue; defaults where None.
        shared_memory_root: where the engine's ring is.

    Raises:
        ConfigError: the token file is not usable.
    """
    settings = settings or ServerSettings()
    access = Access() if settings.token_file is None else Access.read(settings.token_file)
    catalogue = CataloguePlace(settings.catalogue or default_url(follower.directory))
    server = ServerState(
        follower,
        follower.directory,
        shared_memory_root,
        settings,
        access,
        catalogue,
        Exporter(follower),
        EventClock(follower),
    )
    keeper = Keeper(server)

    def close() -> None:
        keeper.close()
        catalogue.close()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if settings.keep_incidents:
            keeper.start()
        yield
        close()

    app = FastAPI(
        title="kvstrata admin API",
        version=version("kvstrata"),
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.server, app.state.keeper, app.state.close = server, keeper, close
    for module in (health, cache, blocks, events, observe, work):
        app.include_router(module.router, dependencies=[Depends(refuse_unknown)])
    add_handlers(app)
    app.add_middleware(Gate, access=access, settings=settings)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    return app
