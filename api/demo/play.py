"""The demo from its first scene to its report."""

from __future__ import annotations

from contextlib import ExitStack

from .dialogue import conversations
from .disk import disk
from .process import EngineProcess
from .report import Report
from .scenes import control, crash, faults, reuse
from .screen import Screen
from .stage import Settings, Stage
from .witness import Witness

__all__ = ["play"]


def play(settings: Settings, engine: EngineProcess, screen: Screen) -> Report:
    """Play all scenes.

    Args:
        settings: what the demo was called with.
        engine: started, nothing opened.
        screen: where to show it.

    Returns:
        What was found; the engine has closed its directory.

    Raises:
        KvstrataError: the engine refused what it should not refuse, or died unasked.
    """
    with ExitStack() as stack:
        with screen.waiting("starting the engine (a first one compiles, unless warmup did)"):
            witness = stack.enter_context(Witness(settings.seed))
            engine.open(settings.opening)
        stage = Stage(settings, engine, witness, screen)
        talks = conversations()

        screen.title("Requests: four conversations share a system prompt and take turns")
        requests = reuse(stage, talks)
        screen.requests(requests)

        screen.title("Crash: the engine is killed (SIGKILL) in the middle of a step")
        heir = stack.enter_context(EngineProcess())
        crashed = crash(stage, talks[:2], heir)
        screen.crash(crashed)
        screen.requests(crashed.requests)

        screen.title("Damage: a byte flipped in a page that the next request would reuse")
        faulty = faults(stage, talks)
        screen.faults(faulty)

        screen.title("Disk: restarted without its pages, with a folder that has them; then damaged")
        stored = disk(stage, talks[1])
        screen.disk(stored)

        screen.title("Negative control: the same without checks must not be identical")
        uncontrolled = control(stage)
        screen.control(uncontrolled)
        heir.close()
    return Report(
        directory=settings.directory,
        shared_memory_root=settings.shared_memory_root,
        seed=settings.seed,
        requests=requests,
        crash=crashed,
        faults=faulty,
        disk=stored,
        negative_control=uncontrolled,
        next_commands=settings.next_commands,
    )
