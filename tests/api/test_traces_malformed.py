"""A malformed trace: exit code 2, and one line that names the file, its line and what is wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .conftest import CommandLine

TOKENS = {"tokens": [1, 2, 3], "output": 2}
MOONCAKE = {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}
ROW = [0.0, 8, 1, "n", 0.0, 0.0, 0, [[1, 2]]]
AGENTIC = {"block_size": 4, "requests": [ROW]}


def row(**changed: Any) -> dict[str, Any]:
    """A conversation of two requests, columns of the second changed."""
    columns = {"prompt": 1, "output": 2, "keep": 6, "ranges": 7}
    second: list[Any] = list(ROW)
    for name, value in changed.items():
        second[columns[name]] = value
    return {"block_size": 4, "requests": [ROW, second]}


MALFORMED: dict[str, tuple[Any, Any, str]] = {
    # name: (a good first line, the bad second one, what is said of it)
    "tokens cut off": (TOKENS, '{"tokens": [1, 2', "expected JSON, found at column 17"),
    "a string cut off": (TOKENS, '{"tok', "expected JSON, found at column 2: Unterminated"),
    "two objects": (TOKENS, '{"tokens": [1]}{}', "expected JSON, found at column 16: Extra data"),
    "no UTF-8": (TOKENS, b'{"tokens": [1], "session": "\xff"}', "expected JSON, found: 'utf-8'"),
    "zeros": (TOKENS, b"\0\0\0\0\0", "expected JSON, found"),
    "too deep": (TOKENS, "[" * 200_000, "expected JSON, found lists or objects nested too deep"),
    "digits": (TOKENS, f'{{"tokens": [{"9" * 5000}]}}', "expected JSON, found: Exceeds the limit"),
    "a list": (TOKENS, [1, 2], "expected a JSON object, found a list of 2"),
    "a number": (TOKENS, 7, "expected a JSON object, found 7"),
    "null": (TOKENS, None, "expected a JSON object, found None"),
    "no tokens": (TOKENS, {"prompt": [1]}, "expected tokens, found 'prompt'"),
    "no key": (TOKENS, {}, "expected tokens, found no key at all"),
    "tokens: none": (TOKENS, {"tokens": []}, "tokens: expected at least one id, found none"),
    "tokens: number": (TOKENS, {"tokens": 3}, "tokens: expected a list of ids, found 3"),
    "tokens: text": (TOKENS, {"tokens": "abc"}, "tokens: expected a list of ids, found 'abc'"),
    "id: negative": (TOKENS, {"tokens": [3, -1]}, "tokens: id: expected a whole number from 0 to"),
    "id: float": (TOKENS, {"tokens": [3, 1.0]}, "to 2**31 - 1, found 1.0"),
    "id: bool": (TOKENS, {"tokens": [3, True]}, "to 2**31 - 1, found True"),
    "id: null": (TOKENS, {"tokens": [3, None]}, "to 2**31 - 1, found None"),
    "id: NaN": (TOKENS, '{"tokens": [3, NaN]}', "to 2**31 - 1, found nan"),
    "id: a list": (TOKENS, {"tokens": [3, [4]]}, "to 2**31 - 1, found a list of 1"),
    "id: 2**31": (TOKENS, {"tokens": [3, 2**31]}, "to 2**31 - 1, found 2147483648"),
    "id: 2**64": (TOKENS, {"tokens": [3, 2**64]}, "to 2**31 - 1, found 18446744073709551616"),
    "output: 0": (TOKENS, TOKENS | {"output": 0}, "output: expected a whole number from 1 to"),
    "output: none": (TOKENS, TOKENS | {"output": []}, "output: expected at least one id"),
    "output: null": (TOKENS, TOKENS | {"output": None}, "to 2**31 - 1, found None"),
    "output: id": (TOKENS, TOKENS | {"output": [-2]}, "output: id: expected a whole number from 0"),
    "session: float": (TOKENS, TOKENS | {"session": 1.5}, "session: expected a string or a whole"),
    "session: bool": (TOKENS, TOKENS | {"session": True}, "session: expected a string or a whole"),
    "session: list": (TOKENS, TOKENS | {"session": []}, "whole number, found a list of 0"),
    "another format": (TOKENS, MOONCAKE, "expected tokens, found 'timestamp, input_length"),
    "too few ids": (MOONCAKE, MOONCAKE | {"hash_ids": [1]}, "expected 2 for 600 tokens, found 1"),
    "too many ids": (MOONCAKE, MOONCAKE | {"input_length": 512}, "expected 1 for 512 tokens"),
    "no ids": (MOONCAKE, MOONCAKE | {"hash_ids": []}, "expected 2 for 600 tokens, found 0"),
    "ids: number": (MOONCAKE, MOONCAKE | {"hash_ids": 4}, "hash_ids: expected a list of ids"),
    "ids: 33 bits": (MOONCAKE, MOONCAKE | {"hash_ids": [1, 2**32]}, "found 4294967296"),
    "input: 0": (MOONCAKE, MOONCAKE | {"input_length": 0}, "input_length: expected a whole number"),
    "input: float": (MOONCAKE, MOONCAKE | {"input_length": 600.0}, "2**31 - 1, found 600.0"),
    "input: list": (MOONCAKE, MOONCAKE | {"input_length": [600]}, "- 1, found a list of 1"),
    "output: -1": (MOONCAKE, MOONCAKE | {"output_length": -1}, "output_length: expected a whole"),
    "output: bool": (MOONCAKE, MOONCAKE | {"output_length": True}, "2**31 - 1, found True"),
    "no output": (MOONCAKE, {"input_length": 1, "hash_ids": [1]}, "expected output_length, found"),
    "rows: number": (AGENTIC, AGENTIC | {"requests": 5}, "requests: expected a list of rows"),
    "row: number": (AGENTIC, AGENTIC | {"requests": [5]}, "request 0: expected a row of 8 columns"),
    "row: short": (AGENTIC, AGENTIC | {"requests": [ROW[:7]]}, "8 columns, found a list of 7"),
    "no block": (AGENTIC, {"requests": []}, "expected block_size, found 'requests'"),
    "block: 0": (
        AGENTIC,
        AGENTIC | {"block_size": 0},
        "block_size: expected a whole number from 1",
    ),
    "scope": (AGENTIC, AGENTIC | {"hash_id_scope": []}, "expected local or global, found a list"),
    "keep beyond": (AGENTIC, row(keep=3), "request 1: keep: expected at most the 2 ids of the"),
    "keep at first": (AGENTIC, AGENTIC | {"requests": [[*ROW[:6], 1, []]]}, "most the 0 ids"),
    "keep: float": (AGENTIC, row(keep=1.0), "request 1: keep: expected a whole number from 0"),
    "prompt too short": (AGENTIC, row(prompt=4), "expected at most 1 ids of 4 tokens for a prompt"),
    "prompt: text": (AGENTIC, row(prompt="8"), "request 1: prompt tokens: expected a whole number"),
    "answer: NaN": (
        AGENTIC,
        row(output=float("nan")),
        "request 1: output tokens: expected a whole",
    ),
    "ranges: number": (AGENTIC, row(ranges=1), "request 1: ranges: expected a list of [start, n]"),
    "range: number": (AGENTIC, row(ranges=[1]), "request 1: ranges: expected [start, n], found 1"),
    "range: triple": (AGENTIC, row(ranges=[[1, 1, 1]]), "expected [start, n], found a list of 3"),
    "range: empty": (AGENTIC, row(ranges=[[1, 0]]), "request 1: n: expected a whole number from 1"),
    "range: start": (AGENTIC, row(ranges=[[-1, 1]]), "request 1: start: expected a whole number"),
    "range: endless": (AGENTIC, row(ranges=[[1, 2**31 - 1]]), "expected at most 2 ids of 4 tokens"),
}


def as_line(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def complaint(kvstrata: CommandLine, path: Path, line: int) -> str:
    """What is said of a line of a trace; nothing else is said or made."""
    directory = path.parent / "log"
    said = kvstrata.refuses("replay", path, "--dir", directory)
    assert not directory.exists()
    head = f"kvstrata: {path} line {line}: "
    assert said.startswith(head)
    assert len(said) < len(head) + 200
    return said.removeprefix(head)


@pytest.mark.parametrize(("good", "bad", "said"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_bad_line_is_named(
    kvstrata: CommandLine, tmp_path: Path, good: Any, bad: Any, said: str
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(as_line(good) + b"\n" + as_line(bad) + b"\n" + as_line(good) + b"\n")
    assert said in complaint(kvstrata, path, 2)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "expected a trace of at least one request, found the end of the file"),
        ("\n\r\n  \n", 3, "expected a trace of at least one request, found the end of the file"),
        ('{"a": 1}\n', 1, "expected an object with one of hash_ids, requests, tokens, found 'a'"),
        ("{}\n", 1, "expected an object with one of hash_ids, requests, tokens, found no key"),
        ("\n[]\n", 2, "expected a JSON object, found a list of 0"),
        ("time,tokens\n", 1, "expected JSON, found at column 1"),
        (json.dumps({"block_size": 4, "requests": []}), 1, "at least one request, found none"),
    ],
    ids=["nothing", "blank lines", "unknown", "no key", "a list", "CSV", "no request"],
)
def test_what_is_no_trace_at_all(
    kvstrata: CommandLine, tmp_path: Path, text: str, line: int, said: str
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text, encoding="utf-8", newline="")
    assert said in complaint(kvstrata, path, line)


@pytest.mark.parametrize("kept", [2, 10, 200, -1])
def test_a_gzip_file_that_was_cut(kvstrata: CommandLine, tmp_path: Path, kept: int) -> None:
    lines = [as_line({"tokens": [number, number * number]}) for number in range(1000)]
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(lines))[:kept])
    said = kvstrata.refuses("replay", path, "--dir", tmp_path / "log")
    assert f"{path} line " in said
    assert "expected a whole gzip file, found: Compressed file ended before" in said
    assert not (tmp_path / "log").exists()


def test_a_gzip_file_of_other_bytes(kvstrata: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    packed = bytearray(gzip.compress(as_line(TOKENS) * 100))
    packed[12:20] = b"\xff" * 8
    path.write_bytes(packed)
    assert "expected a whole gzip file, found: Error -3" in complaint(kvstrata, path, 1)


def test_a_gzip_file_whose_checksum_is_wrong(kvstrata: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    packed = bytearray(gzip.compress(as_line(TOKENS) + b"\n"))
    packed[-6] ^= 1
    path.write_bytes(packed)
    assert "expected a whole gzip file, found: CRC check failed" in complaint(kvstrata, path, 2)


def test_files_that_are_not_there(kvstrata: CommandLine, tmp_path: Path) -> None:
    log = ("--dir", tmp_path / "log")
    missing = kvstrata.refuses("replay", tmp_path / "none", *log)
    assert f"{tmp_path / 'none'}: No such file" in missing
    assert f"{tmp_path}: Is a directory" in kvstrata.refuses("replay", tmp_path, *log)
    assert not (tmp_path / "log").exists()
