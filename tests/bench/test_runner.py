"""A subject's process answers in JSON lines, and serves the jobs it is given."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from jobs import Job, read_jobs, write_jobs
from process import ENTRIES, Entry, SubjectFailed, SubjectProcess

GEOMETRY = {
    "model": "deepseek-v4-flash",
    "budget_bytes": 2_000_000_000,
    "max_sequences": 4,
    "max_tokens": 20_000,
}
BLOCK = 128


def tokens(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 30, count, dtype=np.int32)


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[SubjectProcess]:
    process = SubjectProcess(ENTRIES[0], tmp_path, tmp_path / "subject.log")
    yield process
    process.close()


def test_jobs_are_read_as_they_were_written(tmp_path: Path) -> None:
    jobs = [Job(tokens(number, 10 + number), tokens(100 + number, 3)) for number in range(5)]
    assert write_jobs(tmp_path, iter(jobs)) == 5
    for written, read in zip(jobs, read_jobs(tmp_path), strict=True):
        assert np.array_equal(written.prompt, read.prompt)
        assert np.array_equal(written.output, read.output)


def test_it_serves_and_hits_what_was_served_before(subject: SubjectProcess, tmp_path: Path) -> None:
    opened = subject.ask("open", geometry=GEOMETRY)
    assert opened["name"] == "kvstrata"
    assert opened["settings"]["events"] == "on"
    first = tokens(1, 5 * BLOCK + 7)
    again = np.concatenate([first, tokens(2, 40)])
    jobs = [Job(first, tokens(3, 4)), Job(tokens(4, 100), tokens(5, 9)), Job(again, tokens(6, 1))]
    write_jobs(tmp_path / "work", iter(jobs))
    answer = subject.ask("serve", workload=str(tmp_path / "work"), concurrency=1)
    assert answer["requests"] == 3
    assert answer["prompt_tokens"] == sum(len(job.prompt) for job in jobs)
    assert answer["output_tokens"] == 14
    assert answer["hit_tokens"] == 5 * BLOCK
    assert {verb: found["calls"] for verb, found in answer["verbs"].items()} == {
        "hash": 3,
        "begin": 3,
        "extend": 3,
        "decode": 14,
        "finish": 3,
    }


def test_every_work_answers(subject: SubjectProcess) -> None:
    subject.ask("open", geometry=GEOMETRY)
    hit = subject.ask("full_hit", tokens=8 * BLOCK, repeats=2, inner=2)
    assert hit["hit_tokens"] == 8 * BLOCK
    assert subject.ask("hashing", tokens=1000, repeats=2)["hash"]["calls"] == 2
    prompt = subject.ask("long_prompt", tokens=9000, repeats=2)
    assert prompt["extend"]["calls"] == 2 * 2
    assert subject.ask("decode_steps", batch=3, prompt=50, steps=130)["decode"]["calls"] == 130
    memory = subject.ask("cached_memory", tokens=2000, prompt=1000)
    assert 0 < memory["before_bytes"] <= memory["after_bytes"]
    # 2000 // 1000 prompts of which whole blocks are found again
    assert memory["cached"] == 2 * (1000 // BLOCK) * BLOCK


def test_a_failure_is_an_answer_and_the_process_goes_on(subject: SubjectProcess) -> None:
    subject.ask("open", geometry=GEOMETRY)
    with pytest.raises(SubjectFailed, match="no_such_work"):
        subject.ask("no_such_work")
    with pytest.raises(SubjectFailed, match="sequence row"):
        subject.ask("decode_steps", batch=9, prompt=10, steps=1)
    assert subject.ask("open", geometry=GEOMETRY)["name"] == "kvstrata"


def test_a_process_that_ends_is_a_failure(tmp_path: Path) -> None:
    nobody = Entry("nobody", "nobody", "no_such_adapter")
    process = SubjectProcess(nobody, tmp_path, tmp_path / "log")
    with pytest.raises(SubjectFailed, match="No module named 'no_such_adapter'"):
        process.ask("open", geometry=GEOMETRY)
    process.close()


def test_a_process_that_takes_too_long_is_ended_and_can_begin_again(
    subject: SubjectProcess, tmp_path: Path
) -> None:
    subject.ask("open", geometry=GEOMETRY)
    subject.limit_s = 0.05
    with pytest.raises(SubjectFailed, match=r"took longer than 0\.05 s"):
        subject.ask("long_prompt", tokens=19_000, repeats=2000)
    assert subject.ended
    left = set(Path("/dev/shm").glob("kvstrata-bench-*"))
    another = subject.again()
    assert another.ask("open", geometry=GEOMETRY)["name"] == "kvstrata"
    another.close()
    assert left - set(Path("/dev/shm").glob("kvstrata-bench-*"))
