"""Admission as loads and spills see it; where there is no cap, everything is let in."""

from .admitting import AdmissionControl
from .requests import Plan, Request

__all__ = ["Tickets"]


class Tickets:
    """The tickets of loads, each its request's, who goes on with it.

    Args:
        control: the cap; None admits everybody, on ticket 0.
    """

    def __init__(self, control: AdmissionControl | None) -> None:
        self._control = control

    def admit(self, plan: Plan) -> int:
        """Ask admission for a plan; its ticket."""
        return 0 if self._control is None else self._control.admit(plan, is_load=True)

    def give_back(self, ticket: int) -> None:
        """A ticket was not used."""
        if self._control is not None and ticket:
            self._control.withdrawn(ticket)

    def holds(self, ticket: int, identity: int, leased: int, request: Request) -> None:
        """A load runs on a ticket that its request will go on with."""
        if self._control is not None and ticket:
            self._control.loading(ticket, identity, leased, request)

    def recovered(self, ticket: int) -> None:
        """What a ticket was to load is loaded, or never will be."""
        if self._control is not None and ticket:
            self._control.recovered(ticket)

    def unhold(self, ticket: int) -> None:
        """The request that was admitted for a load will not begin on its ticket."""
        if self._control is not None and ticket:
            self._control.unhold(ticket)

    def load_ended(self, identity: int) -> None:
        """The sequence that owned a load's pages ends."""
        if self._control is not None:
            self._control.load_ended(identity)

    def forget(self, request: Request) -> None:
        """A request need not be admitted: another's load brings what it needs."""
        if self._control is not None:
            self._control.forget(request)

    def check_unpromised(self, blocks: int) -> None:
        """See :meth:`.admitting.AdmissionControl.check_unpromised`."""
        if self._control is not None and blocks:
            self._control.check_unpromised(blocks, "a spill")
