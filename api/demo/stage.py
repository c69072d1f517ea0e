"""What all scenes of the demo share: its settings, the witness, and how a request is asked."""

from __future__ import annotations

import shlex
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from kvstrata import LogConfig

from . import messages as m
from .dialogue import Conversation, system_prompt
from .process import EngineProcess
from .report import RequestResult
from .screen import Bars, Screen
from .witness import Witness

__all__ = ["NUM_NEW_TOKENS", "Answer", "Settings", "Stage"]

NUM_NEW_TOKENS = 17


@dataclass(frozen=True)
class Settings:
    """What the demo was called with.

    Attributes:
        seed: seeds the model's weights.
        directory: the log directory, empty or absent.
        shared_memory_root: where ring and pools lie.
    """

    seed: int
    directory: Path
    shared_memory_root: Path

    @property
    def opening(self) -> m.Open:
        """How the engine is opened, in each of its lives."""
        return m.Open(self.seed, self.directory, self.shared_memory_root, tier=self.tier)

    @property
    def tier(self) -> Path:
        """The folder below the device; nothing is written to it before the scene about it."""
        return self.directory / "disk"

    @property
    def next_commands(self) -> list[str]:
        """What to try on the directory afterwards."""
        where, tier = shlex.quote(str(self.directory)), shlex.quote(str(self.tier))
        memory = ""
        if self.shared_memory_root != LogConfig.shared_memory_root:
            memory = f" --shared-memory-root {shlex.quote(str(self.shared_memory_root))}"
        return [
            f"kvstrata events {where} --type VALIDATION_FAILED --type PAGE_QUARANTINED",
            f"kvstrata events {where} --type OBJECT_FAILED",
            f"kvstrata tiers check {tier}",
            f"kvstrata recover {where} --dry-run{memory}",
            f"kvstrata fsck {where}",
            f"rm -r {where} && kvstrata clean{memory}",
        ]


@dataclass(frozen=True)
class Answer:
    """A request that was served, while the uncached run may still be at it."""

    topic: str
    turn: int
    num_prompt_tokens: int
    served: m.Served
    identical: Future[bool]

    def result(self) -> RequestResult:
        """The request with the verdict, waited for."""
        return RequestResult(
            conversation=self.topic,
            turn=self.turn,
            prompt_tokens=self.num_prompt_tokens,
            resumed_at=self.served.resumed_at,
            computed_tokens=self.num_prompt_tokens - self.served.resumed_at,
            first_token_ms=round(self.served.first_token_ms, 3),
            ms=round(self.served.ms, 3),
            identical=self.identical.result(),
        )


class Stage:
    """An engine process, and the witness of what it says.

    Args:
        settings: what the demo was called with.
        engine: opened.
        witness: of the same seed.
        screen: where to show it.
    """

    def __init__(
        self, settings: Settings, engine: EngineProcess, witness: Witness, screen: Screen
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.witness = witness
        self.screen = screen

    def serve(self, command: m.Serve, label: str, bars: Bars) -> tuple[m.Served, Future[bool]]:
        """Have a request served.

        Returns:
            The answer, and whether the uncached run agrees.
        """
        on_step = bars.add(label, len(command.prompt) + command.num_new_tokens)
        served = self.engine.serve(command, on_step)
        return served, self.witness.agrees(command.prompt, served)

    def prime(self, bars: Bars) -> Answer:
        """Serve the system prompt alone, so that the conversations can resume behind it."""
        prompt = system_prompt()
        served, identical = self.serve(m.Serve(prompt, 1), "system prompt", bars)
        return Answer("system prompt", 1, len(prompt), served, identical)

    def ask(self, conversation: Conversation, bars: Bars) -> Answer:
        """Take a conversation's next turn.

        Mutates: the conversation, which hears the answer.
        """
        prompt = conversation.prompt()
        command = m.Serve(prompt, NUM_NEW_TOKENS)
        served, identical = self.serve(command, conversation.label, bars)
        conversation.hear(prompt, served.tokens)
        return Answer(conversation.topic, conversation.turn, len(prompt), served, identical)
