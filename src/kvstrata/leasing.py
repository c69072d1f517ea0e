"""Leases held outside sequences: granted, verified, released."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvstrata.core.arena import open_tables
from kvstrata.core.errors import ConfigError, OutOfPages, StaleLease
from kvstrata.core.layout import CacheLayout
from kvstrata.core.leases import grant, lease_is_whole, release_grant
from kvstrata.core.room import NO_ROOM, STALE
from kvstrata.core.words import (
    HOLDER_ID,
)

from .asking import ask_of
from .caller import CoreCaller
from .config import CacheConfig
from .handles import Lease
from .requests import Plan
from .topology import PoolAddress, state_data_ptrs

if TYPE_CHECKING:
    from .manager import CacheManager

__all__ = ["Lessor"]


class Lessor:
    """Grants the leases of one manager.

    Args:
        manager: the manager.
        layout: its layout.
        config: its configuration.
        call: runs compiled calls.
    """

    def __init__(
        self,
        manager: "CacheManager",
        layout: CacheLayout,
        config: CacheConfig,
        call: CoreCaller,
    ) -> None:
        self._manager = manager
        self._layout = layout
        self._config = config
        self._call = call
        self._holders = open_tables(call.arena).holders

    def grant(self, plan: Plan) -> Lease:
        """See :meth:`.manager.CacheManager.lease`."""
        call = self._call
        call.check()
        if plan.is_cold:
            raise ConfigError("lease: expected a plan that reuses something, found none")
        plan_rows, ask = ask_of(self._layout, plan)
        row = call.run(grant, call.arena, call.ring, plan_rows, ask)
        if row == STALE:
            raise StaleLease("the plan's pages changed since it was made; match again")
        if row == NO_ROOM:
            raise OutOfPages(
                f"expected a free lease row, found all {self._config.max_leases} taken; release one"
            )
        return Lease(self, int(self._holders[row, HOLDER_ID]), plan)

    def _check_held(self, lease: Lease) -> int:
        row = lease.id & 0xFFFF
        if self._holders[row, HOLDER_ID] != lease.id:
            raise StaleLease(f"lease {lease.id:#x} was released")
        return row

    def state_data_ptrs(self, lease: Lease) -> Mapping[str, PoolAddress]:
        """See :attr:`.handles.Lease.state_data_ptrs`."""
        self._check_held(lease)
        pools = self._manager.pools
        if pools is None:
            raise ConfigError("state_data_ptrs: expected a manager with pools, found none")
        return state_data_ptrs(pools)

    def verify(self, lease: Lease) -> None:
        """See :meth:`.handles.Lease.verify`."""
        row = self._check_held(lease)
        self._manager.check_topology()
        plan_rows, ask = ask_of(self._layout, lease.plan)
        if not lease_is_whole(self._call.arena, row, plan_rows, ask):
            raise StaleLease(f"lease {lease.id:#x}: a page was quarantined since; match again")

    def release(self, lease: Lease) -> None:
        """See :meth:`.handles.Lease.release`."""
        call = self._call
        call.check()
        code = call.run(release_grant, call.arena, call.ring, lease.id & 0xFFFF, lease.id)
        if code == STALE:
            raise StaleLease(f"lease {lease.id:#x} was released before")
        call.drain_limbo(code)
