"""What is not this log is refused in one line, and left as it was."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kvstrata.core.errors import ConfigError, DirectoryBusy, LogError, UnknownSchema
from kvstrata.eventstore.log import EventLog, LogConfig, read_events
from kvstrata.eventstore.log.blobs import canonical_json
from kvstrata.eventstore.log.formats import SegmentHeader
from kvstrata.eventstore.log.scan import read_header

from .support import LAYOUT, PARAMS, Bench, fake_projection, publish_call, segments_of


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "LOCK"
    }


def refused(bench: Bench, error: type[Exception], match: str) -> None:
    before = contents(bench.directory)
    with pytest.raises(error, match=match) as caught:
        bench.open()
    assert "\n" not in str(caught.value)
    assert "expected" in str(caught.value)
    assert contents(bench.directory) == before


def test_a_directory_of_something_else(bench: Bench) -> None:
    bench.directory.mkdir()
    (bench.directory / "thesis.tex").write_text("years of work")
    refused(bench, ConfigError, r"found 'thesis.tex'")
    assert sorted(path.name for path in bench.directory.iterdir()) == ["thesis.tex"]


def test_a_file(bench: Bench) -> None:
    bench.directory.write_text("a file")
    with pytest.raises(ConfigError, match="found a file"):
        bench.open()
    assert bench.directory.read_text() == "a file"


def test_reading_what_is_no_log(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match="expected a kvstrata log directory"):
            next(read_events(directory))
    assert list(tmp_path.iterdir()) == []


def test_another_layout(bench: Bench) -> None:
    bench.write([[3]])
    before = contents(bench.directory)
    with pytest.raises(ConfigError, match=r"expected a log of layout .* found layout .*\(fake\)"):
        EventLog.open(
            bench.directory, LAYOUT, bench.config(), PARAMS, projection=fake_projection("other")
        )
    assert contents(bench.directory) == before


def test_other_sizes(bench: Bench) -> None:
    bench.write([[3]])
    projection = fake_projection()
    object.__setattr__(projection, "digest", b"x" * 16)
    with pytest.raises(ConfigError, match=r"with sizes .*set it aside \(mv "):
        EventLog.open(bench.directory, LAYOUT, bench.config(), PARAMS, projection=projection)


@pytest.mark.parametrize("field", ["format_version", "schema_version"])
def test_another_version(bench: Bench, field: str) -> None:
    bench.write([[3]])
    path = bench.directory / "format.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {field: 99}))
    refused(bench, UnknownSchema, r"found (99|1) and (99|1) .*mv .*\.aside")
    with pytest.raises(UnknownSchema):
        next(read_events(bench.directory))


@pytest.mark.parametrize("field", ["format_version", "schema_version"])
def test_a_segment_of_another_version(bench: Bench, field: str) -> None:
    bench.write([[3]])
    path = segments_of(bench.directory)[0]
    header = read_header(path)
    assert header is not None
    changed = SegmentHeader(**(header.__dict__ | {field: 99}))
    path.write_bytes(changed.pack() + path.read_bytes()[4096:])
    refused(bench, UnknownSchema, r"set it aside")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"magic": "kvstrata-log"}', '{"magic": "x"}'])
def test_damaged_format(bench: Bench, text: str) -> None:
    bench.write([[3]])
    (bench.directory / "format.json").write_text(text)
    refused(bench, LogError if "x" not in text else ConfigError, "expected")


def test_a_crash_while_the_directory_is_made(bench: Bench) -> None:
    bench.directory.mkdir()
    (bench.directory / "LOCK").touch()
    (bench.directory / "segments").mkdir()
    (bench.directory / "format.json.tmp").write_text("{")
    log = bench.open()
    log.close()
    assert not (bench.directory / "format.json.tmp").exists()


def test_a_second_writer_in_this_process(bench: Bench) -> None:
    log = bench.open()
    with pytest.raises(DirectoryBusy, match=f"found process {os.getpid()} writing"):
        bench.open()
    log.close()
    bench.open().close()


def test_a_second_writer_in_another_process(bench: Bench) -> None:
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from kvstrata.eventstore.log.directory import LogPaths
        from kvstrata.eventstore.log.lock import DirectoryLock
        lock = DirectoryLock(LogPaths(Path(sys.argv[1])))
        print("locked", flush=True)
        sys.stdin.read()
        """
    )
    bench.write([[3]])
    with subprocess.Popen(
        [sys.executable, "-c", script, str(bench.directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "locked\n"
        refused(bench, DirectoryBusy, f"found process {holder.pid} writing")
        holder.kill()
        holder.wait()
        log = bench.open()
        log.close()
        assert log.recovery.last_seqno == 3


def test_blobs(bench: Bench) -> None:
    log = bench.open()
    value = {"b": [1, 2.5, None], "a": "ü"}
    digest = log.put_blob(value)
    assert len(digest) == 16
    assert log.put_blob({"a": "ü", "b": [1, 2.5, None]}) == digest
    assert log.get_blob(digest) == value
    path = bench.directory / "blobs" / digest.hex()
    assert path.read_bytes() == canonical_json(value) == b'{"a":"\\u00fc","b":[1,2.5,null]}'
    with pytest.raises(LogError, match="expected blob"):
        log.get_blob(bytes(16))
    path.write_bytes(b"{}")
    with pytest.raises(LogError, match="expected content of digest"):
        log.get_blob(digest)
    with pytest.raises(ValueError, match="not JSON compliant"):
        log.put_blob({"x": float("nan")})
    log.close()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ring_events", 100),
        ("ring_events", 32),
        ("segment_bytes", 4096),
        ("segment_bytes", 100_001),
        ("durability", "sometimes"),
        ("sync_interval_ms", 0),
        ("sync_interval_ms", float("nan")),
        ("stall_limit_ms", 1),
        ("flush_timeout_ms", 0),
        ("segments_per_snapshot", -1),
        ("snapshots_kept", 0),
        ("retention_bytes", -1),
        ("rank", -1),
    ],
)
def test_settings_are_checked(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{field}: expected"):
        LogConfig(**{"ring_events": 256, "segment_bytes": 1 << 20} | {field: value})  # type: ignore[arg-type]


def test_a_moved_directory_starts_cold(bench: Bench) -> None:
    bench.write([[3]])
    moved = Bench(bench.directory.parent / "moved", bench.shared)
    bench.directory.rename(moved.directory)
    log = moved.open()
    log.close()
    assert (log.recovery.ring, log.recovery.bytes_trusted) == ("NO_RING", False)
    assert log.recovery.last_seqno == 3


def test_a_new_log_where_another_one_was(bench: Bench) -> None:
    log = bench.open()
    log.start()
    publish_call(log, 9)
    log.close(clean=False)
    bench.directory.rename(bench.directory.parent / "old")
    log = bench.open()
    assert log.recovery.last_seqno == 0
    publish_call(log, 1)
    log.close()
