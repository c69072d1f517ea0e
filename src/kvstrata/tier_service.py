"""The part of the manager that knows of lower tiers."""

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from kvstrata.core.errors import ConfigError, Deferred, StaleLease

from .command_service import CommandService
from .handles import Sequence
from .planning import Planner
from .requests import Plan, Request

if TYPE_CHECKING:
    from .manager import CacheManager
    from .tiering import Tiering
    from .tiering_stats import TieringStats

__all__ = ["TierService"]


class TierService(CommandService, ABC):
    """What :class:`.manager.CacheManager` does with tiers below the device."""

    _planner: Planner

    @abstractmethod
    def match(self, request: Request, at: int | None = None) -> Plan:
        """See :meth:`.manager.CacheManager.match`."""

    @abstractmethod
    def begin(self, plan: Plan) -> Sequence:
        """See :meth:`.manager.CacheManager.begin`."""

    def _open_tiers(self, manager: "CacheManager") -> None:
        if self.config.tiers is None:
            return
        ranks = self._planner.ranks.size
        if ranks > 1:
            raise ConfigError(
                f"tiers: expected a manager of one rank, found {ranks}: ranks do not agree on what "
                "is stored"
            )
        try:
            from .tiering import Tiering  # SQL and object stores, which others do not need
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"tiers: expected the packages of kvstrata's extra 'tiers', found no "
                f"{error.name}: pip install 'kvstrata[tiers]'"
            ) from error
        self._tiering = Tiering(
            manager, self.layout, self.config.tiers, self._call, manager._readers_before
        )
        self._turns.insert(0, self._tiering.service)
        self._planner.tiers = self._tiering.readable
        self._planner.is_loading = self._tiering.loader.is_loading

    def _tiers(self) -> "Tiering":
        if self._tiering is None:
            raise ConfigError("expected a manager with tiers, found one without; set config.tiers")
        return self._tiering

    def prefetch(self, request: Request) -> bool:
        """Begin to load what a request will need from lower tiers, as far as admission lets it.

        To be called as soon as a request is queued; ``begin`` then finds it here, or on its way.

        Returns:
            Whether anything is on its way.

        Raises:
            ConfigError: the manager has no lower tiers.
        """
        self._enter()
        return self._tiers().prefetch(request)

    def begin_when_ready(self, request: Request, timeout_s: float = 60.0) -> Sequence:
        """Match and begin a request, waiting where it has to: for its load, or to be admitted.

        Raises:
            Deferred: the time is over; the request keeps its place until it is withdrawn.
            AdmissionDenied, OutOfPages: as :meth:`begin`.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                return self.begin(self.match(request))
            except Deferred as error:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise
                wait_s = min(error.retry_after_s, left_s)
                if self._tiering is None:
                    time.sleep(wait_s)
                else:
                    self._tiering.wait(wait_s)
            except StaleLease:
                continue

    def settle_tiers(self, timeout_s: float = 30.0) -> bool:
        """Wait until all that was sealed is stored, and nothing is being loaded.

        Returns:
            Whether that came in time.

        Raises:
            ConfigError: the manager has no lower tiers.
        """
        self._enter()
        return self._tiers().settle(timeout_s)

    def tier_stats(self) -> "TieringStats | None":
        """What is stored below the device, and how loads and spills go; None without tiers."""
        return None if self._tiering is None else self._tiering.stats()

    def with_tiers(self, plan: Plan) -> Plan:
        """See to what a plan needs of lower tiers; see :meth:`.tiering.Tiering.before`."""
        return plan if self._tiering is None else self._tiering.before(plan)

    def loaded_tokens(self, plan: Plan) -> int:
        """Tokens that a plan reuses and that a lower tier gave for its request."""
        if self._tiering is None:
            return 0
        brought = self._tiering.loader.brought
        return brought.tokens(plan.request, plan.resume_at, self.layout.block_tokens)

    def request_began(self, plan: Plan) -> None:
        """A request has begun on a plan: nothing is kept for it any more."""
        if self._tiering is not None:
            self._tiering.began(plan)

    def request_withdrawn(self, request: Request) -> None:
        """A request will not ask again."""
        if self._tiering is not None:
            self._tiering.loader.withdraw(request)
