"""The part of the manager that takes operators' commands."""

from typing import TYPE_CHECKING, cast

from kvstrata.core.errors import ConfigError, Deferred

from .commanding import Commanding, CommandingStatus, CommandSource
from .upkeep import UpkeepService

if TYPE_CHECKING:
    from .manager import CacheManager

__all__ = ["CommandService"]

_DRAINING_RETRY_S = 1.0


class CommandService(UpkeepService):
    """What :class:`.manager.CacheManager` does for operators."""

    _commanding: Commanding | None = None

    def follow_commands(self, source: CommandSource, poll_s: float = 0.5) -> None:
        """Take operators' commands from now on, at the beginning of calls; see docs/api.md.

        Args:
            source: where they come from, such as a catalogue's; the manager closes it.
            poll_s: seconds between two looks.

        Raises:
            ConfigError: the manager keeps no log, or follows a source already.
        """
        self._call.check()
        if self.log is None:
            raise ConfigError(
                "follow_commands: expected a manager with a log directory, found none: what is "
                "done for operators is answered by events"
            )
        if self._commanding is not None:
            raise ConfigError("follow_commands: expected one source of commands, found a second")
        if not poll_s > 0:
            raise ConfigError(f"poll_s: expected more than 0, found {poll_s!r}")
        manager = cast("CacheManager", self)
        self._commanding = Commanding(manager, self.log, source, poll_s)
        self._turns.append(self._commanding.turn)

    def commands_status(self) -> CommandingStatus | None:
        """How commands are doing; None where the manager follows no source."""
        return None if self._commanding is None else self._commanding.status()

    def check_admits(self) -> None:
        """Turn a request away while an operator drains the engine.

        Raises:
            Deferred: it does.
        """
        if self._commanding is not None and self._commanding.operator.is_draining:
            raise Deferred(
                "an operator drains this engine: no new request is let in; ask another engine, or "
                f"again in {_DRAINING_RETRY_S:g} s",
                _DRAINING_RETRY_S,
                limit="draining",
            )

    def end_commands(self) -> None:
        """Answer what has ended and take no more commands."""
        if self._commanding is not None:
            self._commanding.end()
