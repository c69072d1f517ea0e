from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvstrata.api.traces import Trace, TraceRequest, read_trace

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"


def trace_of(folder: Path, *lines: Any) -> Trace:
    """Read a trace of these values, a line each."""
    path = folder / "trace.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return read_trace(path)


def mooncake(prompt: int, output: int, *ids: int) -> dict[str, Any]:
    return {"timestamp": 0, "input_length": prompt, "output_length": output, "hash_ids": ids}


def agentic(*rows: tuple[int, int, int, list[list[int]]], **more: Any) -> dict[str, Any]:
    """A conversation; a row's prompt and output tokens, keep and ranges."""
    whole = [[0.0, prompt, output, "n", 0.1, 0.2, keep, own] for prompt, output, keep, own in rows]
    return {"id": "one", "block_size": 4, "requests": whole, **more}


def blocks(request: TraceRequest, block: int) -> list[tuple[int, ...]]:
    tokens = request.prompt().tolist()
    return [tuple(tokens[at : at + block]) for at in range(0, len(tokens), block)]


def test_mooncake_requests_are_sessions_of_their_own(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, mooncake(700, 3, 7, 8), mooncake(1024, 0, 7, 9))
    assert trace.kind == "mooncake"
    assert [len(session) for session in trace.sessions] == [1, 1]
    first, second = trace.requests()
    assert (first.prompt_tokens, len(first.prompt()), first.line) == (700, 700, 1)
    assert (second.prompt_tokens, len(second.prompt()), second.line) == (1024, 1024, 2)
    assert (len(first.output()), len(second.output())) == (3, 1)
    assert trace.longest == 1025


def test_equal_ids_are_equal_tokens_and_others_others(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, mooncake(1536, 1, 7, 8, 7), mooncake(1536, 1, 7, 2**31 - 1, 8))
    one, other = (blocks(request, 512) for request in trace.requests())
    assert one[0] == one[2] == other[0]
    assert one[1] == other[2]
    assert len({one[0], one[1], other[1]}) == 3
    assert not set(one[0]) & set(one[1])


def test_a_last_block_that_is_not_full_begins_like_the_full_one(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, mooncake(512 + 188, 1, 7, 8), mooncake(1024, 1, 7, 8))
    short, full = (request.prompt() for request in trace.requests())
    assert np.array_equal(short, full[:700])


def test_long_blocks_are_made_no_longer_than_their_prompt(tmp_path: Path) -> None:
    rows = [(100, 1, 0, [[1, 1]]), (200, 1, 1, []), (100, 1, 0, [])]
    trace = trace_of(tmp_path, agentic(*rows) | {"block_size": 2**31 - 1})
    first, second, third = (request.prompt() for request in trace.requests())
    assert (len(first), len(second), len(third)) == (100, 200, 100)
    assert np.array_equal(first, second[:100])
    assert not set(first.tolist()) & set(third.tolist())


def test_tokens_are_ids_of_30_bits(tmp_path: Path) -> None:
    (request,) = trace_of(tmp_path, mooncake(51200, 9000, *range(100))).requests()
    for tokens in (request.prompt(), request.output()):
        assert tokens.dtype == np.int32
        assert 0 <= tokens.min() < 2**20
        assert 2**30 - 2**20 < tokens.max() < 2**30


def test_keep_and_ranges(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        agentic(
            (20, 5, 0, [[1, 3], [9, 2]]),  # 1 2 3 9 10
            (20, 5, 4, [[20, 1]]),  # 1 2 3 9 20
            (12, 5, 3, []),  # 1 2 3
            (16, 5, 2, [[9, 2]]),  # 1 2 9 10
        ),
    )
    assert trace.kind == "agentic"
    (session,) = trace.sessions
    assert [len(request.prompt()) for request in session] == [20, 20, 12, 16]
    one, two, three, four = (blocks(request, 4) for request in session)
    assert two[:4] == one[:4]
    assert two[4] not in one
    assert three == one[:3]
    assert four == [one[0], one[1], one[3], one[4]]


def test_what_has_no_id_is_like_nothing_else(tmp_path: Path) -> None:
    rows = [(11, 8, 0, [[1, 2]]), (11, 8, 2, []), (3, 8, 0, [])]
    (session,) = trace_of(tmp_path, agentic(*rows)).sessions
    first, second, third = session
    assert np.array_equal(first.prompt()[:8], second.prompt()[:8])
    tails = [first.prompt()[8:], second.prompt()[8:], third.prompt()]
    unlike = [*tails, *(request.output() for request in session), first.prompt()[:8]]
    together = np.concatenate(unlike)
    assert len(np.unique(together)) == len(together) == 3 * 3 + 3 * 8 + 8


def test_ids_are_local_to_a_conversation_unless_it_says_otherwise(tmp_path: Path) -> None:
    row = (8, 1, 0, [[1, 2]])
    scoped = [agentic(row, hash_id_scope=scope) for scope in ("local", "global", "global")]
    trace = trace_of(tmp_path, agentic(row), *scoped)
    unsaid, local, one, other = (tuple(request.prompt()) for request in trace.requests())
    assert one == other
    assert len({unsaid, local, one}) == 3


def test_conversations_are_sessions_and_empty_ones_none(tmp_path: Path) -> None:
    row = (8, 1, 0, [[1, 2]])
    trace = trace_of(tmp_path, agentic(row, row), agentic(), agentic(row))
    assert [len(session) for session in trace.sessions] == [2, 1]
    assert [request.line for request in trace.requests()] == [1, 1, 3]


def test_token_lines(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        {"tokens": [1, 2, 3], "output": [7, 8], "session": "a", "further": None},
        {"tokens": [2**31 - 1, 0], "output": 4},
        {"tokens": [5]},
    )
    assert trace.kind == "tokens"
    first, second, third = trace.requests()
    assert (first.prompt().tolist(), first.output().tolist()) == ([1, 2, 3], [7, 8])
    assert (second.prompt().tolist(), second.output_tokens) == ([2**31 - 1, 0], 4)
    assert (third.prompt_tokens, third.output_tokens) == (1, 1)
    together = np.concatenate([second.output(), third.output()])
    assert len(np.unique(together)) == 5


def test_requests_of_a_session_follow_each_other(tmp_path: Path) -> None:
    names = ["a", None, 1, "a", "1", None, 1, "a"]
    trace = trace_of(
        tmp_path,
        *(
            {"tokens": [number + 1], **({} if name is None else {"session": name})}
            for number, name in enumerate(names)
        ),
    )
    found = [[int(request.prompt()[0]) for request in session] for session in trace.sessions]
    assert found == [[1, 4, 8], [2], [3, 7], [5], [6]]


TOKEN_LINE = {"tokens": [1, 2, 3], "output": 5, "session": "a"}


@pytest.mark.parametrize(
    "line",
    [mooncake(700, 3, 7, 8), agentic((11, 8, 0, [[1, 2]])), TOKEN_LINE],
    ids=["mooncake", "agentic", "tokens"],
)
def test_gzip_equals_plain(tmp_path: Path, line: dict[str, Any]) -> None:
    plain = trace_of(tmp_path, line, line)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress((tmp_path / "trace.jsonl").read_bytes()))
    unpacked = read_trace(packed)
    assert (unpacked.kind, unpacked.digest) == (plain.kind, plain.digest)
    pairs = list(zip(plain.requests(), unpacked.requests(), strict=True))
    assert len(pairs) == 2
    for one, other in pairs:
        assert np.array_equal(one.prompt(), other.prompt())
        assert np.array_equal(one.output(), other.output())


@pytest.mark.parametrize(
    "text",
    [
        '{"tokens": [1]}\r\n{"tokens": [2]}\r\n',
        '\ufeff{"tokens": [1]}\n{"tokens": [2]}\n',
        '\n \n{"tokens": [1]}\n\r\n{"tokens": [2]}',
    ],
    ids=["CRLF", "BOM", "blank lines"],
)
def test_other_line_ends(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(text.encode())
    assert [request.prompt().tolist() for request in read_trace(path).requests()] == [[1], [2]]


def test_another_trace_has_another_digest(tmp_path: Path) -> None:
    digests = {trace_of(tmp_path, {"tokens": [number]}).digest for number in range(3)}
    assert len(digests) == 3


def real(name: str) -> Trace:
    path = SHARED / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no {path.name} in ../shared/traces")
    return read_trace(path)


def ids_of(request: Any) -> list[int]:
    return request.ids.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "requests", "tokens", "ideal"),
    [
        ("mooncake_conversation", 12_031, 144_793_823, 0.3736),
        ("mooncake_synthetic", 3_993, 61_194_628, 0.6512),
    ],
)
def test_mooncake_traces(name: str, requests: int, tokens: int, ideal: float) -> None:
    """Ideal: tokens of blocks whose id was seen before, as a cache of any size would hit them."""
    trace = real(name)
    assert (trace.num_requests, len(trace.sessions)) == (requests, requests)
    assert sum(request.prompt_tokens for request in trace.requests()) == tokens
    seen: set[int] = set()
    hit = 0
    for request in trace.requests():
        ids = ids_of(request)
        known = sum(number in seen for number in ids)
        hit += min(known * 512, request.prompt_tokens)
        seen.update(ids)
    assert hit / tokens == pytest.approx(ideal, abs=5e-5)


def test_agentic_trace() -> None:
    """Ideal: whole blocks of the request before, as they stand in one conversation.

    Prompt tokens are those of the rows; the file's ``totals`` count 30.6M more, of subagents whose
    requests it does not hold.
    """
    trace = real("agentic_coding")
    assert (trace.num_requests, len(trace.sessions)) == (48_658, 710)
    tokens = sum(request.prompt_tokens for request in trace.requests())
    assert tokens == 6_006_837_305
    hit = 0
    for session in trace.sessions:
        before = np.zeros(0, dtype=np.int64)
        for request in session:
            ids = request.ids  # type: ignore[attr-defined]
            most = min(len(before), len(ids))
            same = before[:most] == ids[:most]
            hit += 64 * (most if same.all() else int(np.argmin(same)))
            before = ids
    assert hit / tokens == pytest.approx(0.9631, abs=5e-5)
