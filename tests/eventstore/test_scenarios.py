"""Transcripts of a log's life: command, ----, output.

Each file under tests/scenarios/log_*.txt says in its first lines why it exists. Run with
KVSTRATA_REWRITE=1 to write the outputs anew, then read the difference.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kvstrata.core.errors import KvstrataError
from kvstrata.core.ring import RING_HEADER_WORDS
from kvstrata.eventstore.log import EventLog, RecoveryReport, read_events
from kvstrata.eventstore.log.fsck import fsck
from kvstrata.eventstore.log.scan import SegmentScan, read_header
from kvstrata.eventstore.log.system import System

from .support import Bench, edit, fake_projection, make_call, publish_call, segments_of

FOLDER = Path(__file__).parents[1] / "scenarios"
SCENARIOS = sorted(FOLDER.glob("log_*.txt"))


class Boot(System):
    def __init__(self, number: int) -> None:
        self._number = number

    def boot_id(self) -> bytes:
        return self._number.to_bytes(16, "little")


class Stage:
    """What a transcript's commands act on."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.boot = 1
        self.log: EventLog | None = None
        # Nothing is written before it is asked for, so that outputs do not depend on the clock.
        self.settings: dict[str, object] = {
            "segment_bytes": 8192,
            "ring_events": 64,
            "sync_interval_ms": 500,
        }

    @property
    def living(self) -> EventLog:
        if self.log is None:
            raise AssertionError("expected an open log; the transcript must say open first")
        return self.log

    def run(self, line: str) -> str:
        name, *arguments = line.split()
        command: Callable[..., str] = getattr(self, f"do_{name.replace('-', '_')}")
        try:
            return command(*arguments)
        except KvstrataError as error:
            return f"{type(error).__name__}: {self._short(str(error))}"

    def _short(self, text: str) -> str:
        text = text.replace(f"{self.bench.directory}/", "").replace(f"{os.getpid()}", "PID")
        return text.replace(str(self.bench.directory), "DIR")

    def do_set(self, *pairs: str) -> str:
        for pair in pairs:
            name, value = pair.split("=")
            self.settings[name] = value if value.isalpha() else int(value)
        return "ok"

    def do_open(self) -> str:
        log = self.bench.open(Boot(self.boot), **self.settings)
        log.start()
        self.log = log
        return self._report(log.recovery) + f"\nincarnation {log.incarnation}"

    def _report(self, report: RecoveryReport) -> str:
        lines = [
            f"events 1 to {report.last_seqno}: {report.events_replayed} replayed after "
            f"{report.snapshot_seqno}, {report.events_from_ring} of them from the ring",
            f"ring {report.ring}, bytes {'trusted' if report.bytes_trusted else 'not trusted'}"
            + (", clean" if report.clean else "")
            + (", unlogged" if report.unlogged else "")
            + (", other boot" if report.boot_changed else ""),
        ]
        lines += [f"damage: {self._short(str(damage))}" for damage in report.damage]
        return "\n".join(lines)

    def do_publish(self, *sizes: str) -> str:
        publish_call(self.living, *map(int, sizes))
        return f"head {self.living.status().head}"

    def do_flush(self) -> str:
        self.living.flush()
        return f"durable {self.living.status().durable}"

    def do_publish_half(self, size: str) -> str:
        """Part of a call that is never published."""
        head = self.living.status().head
        for place, event in enumerate(make_call(head + 1, int(size))[:-1]):
            at = RING_HEADER_WORDS + (head + place) % 64 * 8
            self.living.ring[at : at + 8] = event
        return f"head {self.living.status().head}"

    def do_write(self) -> str:
        """Have everything written, but nothing synced (durability none)."""
        while self.living.status().drained < self.living.status().head:
            pass
        return f"drained {self.living.status().drained}, durable {self.living.status().durable}"

    def do_snapshot(self) -> str:
        return self.living.snapshot(self.living.arena, self.living.status().head).name

    def do_end_epoch(self, reason: str) -> str:
        self.living.end_epoch(reason)
        return "unlogged"

    def do_settle(self) -> str:
        self.living.settle_recovery()
        return "settled"

    def do_kill(self) -> str:
        self.living.close(clean=False)
        return "killed"

    def do_close(self) -> str:
        self.living.close()
        return "closed"

    def do_reboot(self) -> str:
        self.boot += 1
        return f"boot {self.boot}"

    def do_clean_memory(self) -> str:
        self.bench.forget_ring()
        return "ok"

    def do_damage(self, segment: str, batch: str, byte: str) -> str:
        path, offset = self._batch(segment, batch)
        edit(path, offset + int(byte), b"\xa5\x5a")
        return f"{self._short(str(path))} at byte {offset + int(byte)}"

    def do_lose(self, what: str, *place: str) -> str:
        if what == "batch":
            path, offset = self._batch(*place)
            data = path.read_bytes()
            count = int.from_bytes(data[offset + 12 : offset + 16], "little")
            edit(path, offset, bytes(64 * (count + 1)))
            return f"{self._short(str(path))} at byte {offset}, {count} events"
        if what == "snapshots":
            shutil.rmtree(self.bench.directory / "snapshots")
        else:
            (self.bench.directory / what).unlink()
        return "ok"

    def _batch(self, segment: str, batch: str) -> tuple[Path, int]:
        path = segments_of(self.bench.directory)[int(segment) - 1]
        header = read_header(path)
        assert header is not None
        return path, [part.offset for part in SegmentScan(path, header).batches()][int(batch) - 1]

    def do_segments(self) -> str:
        lines = []
        for path in segments_of(self.bench.directory):
            header = read_header(path)
            assert header is not None
            scan = SegmentScan(path, header)
            sizes = [len(batch.words) for batch in scan.batches()]
            lines.append(
                f"{path.name}: id {header.segment_id}, incarnation {header.incarnation}, "
                f"batches {sizes}, {scan.tail.kind.name.lower()}"
                + (f" ({scan.tail.footer.reason.name.lower()})" if scan.tail.footer else "")
            )
        return "\n".join(lines)

    def do_events(self, first: str = "1") -> str:
        parts = list(read_events(self.bench.directory, int(first)))
        seqnos = np.concatenate([part["seqno"] for part in parts]) if parts else np.zeros(0)
        return f"{len(seqnos)} events" + (f", {seqnos[0]} to {seqnos[-1]}" if len(seqnos) else "")

    def do_fsck(self, *options: str) -> str:
        report = fsck(self.bench.directory, "repair" in options, self.bench.shared)
        lines = [f"repair: {line}" for line in report.repairs]
        lines += [f"fault: {self._short(str(damage))}" for damage in report.faults]
        lines += [f"note: {self._short(str(damage))}" for damage in report.notes]
        lines.append("sound" if report.is_sound else "not sound")
        return "\n".join(lines)

    def do_open_as(self, layout: str) -> str:
        EventLog.open(
            self.bench.directory,
            None,  # type: ignore[arg-type]
            self.bench.config(**self.settings),
            None,  # type: ignore[arg-type]
            projection=fake_projection(layout),
        )
        return "opened"


def split(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The comment at the top, and commands with their outputs."""
    blocks = text.strip().split("\n\n")
    steps = []
    for block in blocks[1:]:
        command, _, output = block.partition("\n----\n")
        steps.append((command, output))
    return blocks[0], steps


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_transcript(path: Path, bench: Bench) -> None:
    comment, steps = split(path.read_text())
    assert comment.startswith("# ")
    stage = Stage(bench)
    outputs = [(command, stage.run(command)) for command, _ in steps]
    if os.environ.get("KVSTRATA_REWRITE"):
        blocks = [f"{command}\n----\n{output}" for command, output in outputs]
        path.write_text("\n\n".join([comment, *blocks]) + "\n")
    assert outputs == steps or os.environ.get("KVSTRATA_REWRITE")


def test_there_are_transcripts() -> None:
    assert len(SCENARIOS) >= 6
