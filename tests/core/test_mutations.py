"""The comparison finds small faults: in a copy of the package each shipped edit makes it fail."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from .copies import REPOSITORY, copy_package, edit, run_python
from .mutations import IN_A_WALK, IN_LOADS, IN_SHORT_HISTORIES, Mutation

WALK = ["-m", "tests.core.walk", "7", "400", "index"]
PYTEST = ["-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
SHORT_HISTORIES = [*PYTEST, "tests/core/test_resuming.py", "tests/core/test_forking.py"]
LOADS = [
    *(*PYTEST, "tests/core/test_load_histories.py", "tests/core/test_stored_histories.py"),
    *("-k", "not cut"),
]
INTERPRETED = {"NUMBA_DISABLE_JIT": "1"}
MUTATIONS = IN_A_WALK + IN_SHORT_HISTORIES + IN_LOADS


def compare_in_a_copy(folder: Path, mutation: Mutation | None) -> CompletedProcess[str]:
    core = copy_package(folder)
    if mutation is not None:
        edit(core / mutation.file, mutation.old, mutation.new)
    arguments = SHORT_HISTORIES if mutation in IN_SHORT_HISTORIES else WALK
    arguments = LOADS if mutation in IN_LOADS else arguments
    return run_python(arguments, folder, INTERPRETED)


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CompletedProcess[str]]:
    """The same walk in an unchanged copy (""), and each mutated one, two at a time."""
    copies = {"": None, **{mutation.name: mutation for mutation in MUTATIONS}}
    folders = [tmp_path_factory.mktemp("copy") for _ in copies]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(copies, pool.map(compare_in_a_copy, folders, copies.values()), strict=True))


def test_the_unchanged_copy_is_equal_to_the_reference(
    comparisons: dict[str, CompletedProcess[str]],
) -> None:
    assert comparisons[""].returncode == 0, comparisons[""].stderr
    core = Path(json.loads(comparisons[""].stdout)["core"])
    assert not core.is_relative_to(REPOSITORY)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutated_copy_is_not(
    mutation: Mutation, comparisons: dict[str, CompletedProcess[str]]
) -> None:
    comparison = comparisons[mutation.name]
    assert comparison.returncode == 1, comparison.stdout
    complaints = (comparison.stdout + comparison.stderr).partition("Different: ")[2]
    assert mutation.complaint in complaints
