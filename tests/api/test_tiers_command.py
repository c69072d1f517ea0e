from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvstrata.tiers.catalogue import Catalogue
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.store import open_store

from ..tiers.objects import SCHEMA, put
from ..tiers.support import BUCKET, s3_environment, s3_server

if TYPE_CHECKING:
    from .conftest import CommandLine

BLOCK_BYTES = SCHEMA.object_bytes(False)
CHECKPOINT_BYTES = SCHEMA.object_bytes(True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two blocks and a checkpoint, and no catalogue."""
    store = LocalStore(tmp_path / "disk")
    put(store, 1)
    put(store, 2)
    put(store, 3, is_checkpoint=True)
    return tmp_path / "disk"


def rows(folder: Path, tier: str = "disk") -> set[str]:
    catalogue = Catalogue.open(f"sqlite:///{folder / 'catalogue.sqlite'}")
    found = {row.name for row in catalogue.entries(tier)}
    catalogue.close()
    return found


def files(folder: Path) -> list[str]:
    objects = folder / "objects"
    return sorted(str(file.relative_to(objects)) for file in objects.rglob("*") if file.is_file())


def damage(folder: Path, name: str, place: int = -1) -> None:
    file = folder / "objects" / name
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


def test_show_counts_by_namespace_and_kind(kvstrata: CommandLine, folder: Path) -> None:
    for index, name in enumerate(files(folder)):
        os.utime(folder / "objects" / name, (1_700_000_000 + index, 1_700_000_000 + index))
    outcome = kvstrata("tiers", "show", folder, "--json")
    assert outcome.code == 0
    blocks, checkpoints = outcome.json["kinds"]
    assert outcome.json["num_objects"] == 3
    assert outcome.json["num_bytes"] == 2 * BLOCK_BYTES + CHECKPOINT_BYTES
    assert (blocks["namespace"], blocks["kind"]) == (SCHEMA.namespace, "block")
    assert (blocks["num_objects"], blocks["num_bytes"]) == (2, 2 * BLOCK_BYTES)
    assert (checkpoints["kind"], checkpoints["num_bytes"]) == ("checkpoint", CHECKPOINT_BYTES)
    times = {blocks["oldest_s"], blocks["newest_s"], checkpoints["oldest_s"]}
    assert times == {1_700_000_000, 1_700_000_001, 1_700_000_002}

    people = kvstrata("tiers", "show", folder).out
    assert SCHEMA.namespace in people
    assert "2023-11-1" in people
    assert people.splitlines()[-1].startswith("3 objects, ")


def test_an_empty_folder_is_no_fault(kvstrata: CommandLine, tmp_path: Path) -> None:
    LocalStore(tmp_path / "disk")
    for command in ("show", "check", "rebuild", "collect"):
        assert kvstrata("tiers", command, tmp_path / "disk").code == 0


def test_rebuild_makes_the_catalogue_in_the_folder(kvstrata: CommandLine, folder: Path) -> None:
    outcome = kvstrata("tiers", "rebuild", folder, "--json")
    assert outcome.code == 0
    assert outcome.json["num_objects"] == 3
    assert rows(folder) == set(files(folder))
    assert "3 of" in kvstrata("tiers", "rebuild", folder).out


def test_rebuild_takes_another_catalogue_and_another_name(
    kvstrata: CommandLine, folder: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'catalogue.sqlite'}"
    assert kvstrata("tiers", "rebuild", folder, "--catalogue", url, "--tier", "cold").code == 0
    assert rows(tmp_path, "cold") == set(files(folder))
    assert not (folder / "catalogue.sqlite").exists()


def test_rebuild_names_what_gets_no_row(kvstrata: CommandLine, folder: Path) -> None:
    bad = files(folder)[0]
    damage(folder, bad, 0)
    outcome = kvstrata("tiers", "rebuild", folder)
    assert outcome.code == 1
    assert f"fault: {bad}: object_header: magic" in outcome.out
    assert rows(folder) == set(files(folder)) - {bad}


def test_a_corrupt_catalogue_is_bad_input_with_advice(kvstrata: CommandLine, folder: Path) -> None:
    (folder / "catalogue.sqlite").write_bytes(b"damaged" * 100)
    assert "move it away" in kvstrata.refuses("tiers", "rebuild", folder)
    (folder / "catalogue.sqlite").unlink()
    assert kvstrata("tiers", "rebuild", folder).code == 0


def test_check_names_each_bad_object_with_its_reason(kvstrata: CommandLine, folder: Path) -> None:
    assert kvstrata("tiers", "check", folder).out.splitlines()[-1] == "sound"
    first, second, third = files(folder)
    damage(folder, first)
    damage(folder, second, -100)
    outcome = kvstrata("tiers", "check", folder, "--json")
    assert outcome.code == 1
    assert outcome.json["is_sound"] is False
    assert outcome.json["num_objects"] == 3
    reasons = {fault["name"]: fault["reason"] for fault in outcome.json["faults"]}
    assert reasons == {first: "object_trailer", second: "checksum_mismatch"}
    people = kvstrata("tiers", "check", folder)
    assert people.code == 1
    assert f"fault: {second}: checksum_mismatch: checksum of page" in people.out
    assert people.out.splitlines()[-1] == "2 faults"
    assert files(folder) == [first, second, third]


def test_check_quarantines_bad_objects_and_their_rows(kvstrata: CommandLine, folder: Path) -> None:
    kvstrata("tiers", "rebuild", folder)
    bad, *good = files(folder)
    damage(folder, bad)
    outcome = kvstrata("tiers", "check", folder, "--quarantine", "--json")
    assert outcome.code == 1
    assert outcome.json["set_aside"] == [bad]
    assert files(folder) == good
    assert rows(folder) == set(good)
    assert len(list((folder / "quarantine").iterdir())) == 1
    assert kvstrata("tiers", "check", folder, "--quarantine").code == 0


def test_collect_says_where_they_differ_and_then_mends_it(
    kvstrata: CommandLine, folder: Path
) -> None:
    kvstrata("tiers", "rebuild", folder)
    gone, *_ = files(folder)
    (folder / "objects" / gone).unlink()
    new = put(LocalStore(folder), 4)
    planned = kvstrata("tiers", "collect", folder, "--dry-run", "--json")
    assert planned.code == 0
    assert planned.json["rows_without_object"] == [gone]
    assert planned.json["objects_without_row"] == [new]
    people = kvstrata("tiers", "collect", folder, "--dry-run").out
    assert f"object without row: {new}\nnothing was changed" in people
    assert gone in rows(folder)

    done = kvstrata("tiers", "collect", folder, "--json").json
    assert (done["num_rows_removed"], done["num_rows_added"]) == (1, 1)
    assert rows(folder) == set(files(folder))
    assert new in files(folder)


def test_a_dry_run_makes_no_catalogue(kvstrata: CommandLine, folder: Path) -> None:
    outcome = kvstrata("tiers", "collect", folder, "--dry-run", "--json")
    assert outcome.json["objects_without_row"] == files(folder)
    assert not (folder / "catalogue.sqlite").exists()


@pytest.mark.parametrize("command", ["show", "rebuild", "check", "collect"])
def test_what_is_no_tiers_folder_is_refused_and_not_made(
    kvstrata: CommandLine, tmp_path: Path, command: str
) -> None:
    missing = tmp_path / "missing"
    refusal = kvstrata.refuses("tiers", command, missing)
    assert f"{missing}: expected a tier's folder, with a folder objects, found no" in refusal
    assert "found one without" in kvstrata.refuses("tiers", command, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["show", "rebuild", "check", "collect"])
def test_each_has_help_with_examples_and_json(kvstrata: CommandLine, command: str) -> None:
    outcome = kvstrata("tiers", command, "--help")
    assert outcome.code == 0
    assert f"kvstrata tiers {command}" in outcome.out.split("Examples", 1)[1]
    assert "--json" in outcome.out


def test_a_place_is_a_folder_or_a_bucket(kvstrata: CommandLine, folder: Path) -> None:
    refusal = kvstrata.refuses("tiers", "show", "ftp://host/folder")
    assert "expected a folder, file:///folder or s3://bucket/prefix" in refusal
    assert "3 objects" in kvstrata("tiers", "show", folder.as_uri()).out


@pytest.mark.parametrize("command", ["rebuild", "collect"])
def test_a_bucket_has_no_catalogue_of_its_own(kvstrata: CommandLine, command: str) -> None:
    refusal = kvstrata.refuses("tiers", command, "s3://bucket/prefix")
    assert "--catalogue: expected a URL, since s3://bucket/prefix is no folder" in refusal


def test_all_of_it_works_on_a_bucket(
    kvstrata: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, catalogue = f"s3://{BUCKET}/tiers-command", f"sqlite:///{tmp_path / 'catalogue.sqlite'}"
    with s3_server() as server:
        for name, value in s3_environment(server.endpoint).items():
            monkeypatch.setenv(name, value)
        bucket = open_store(url)
        held = {put(bucket, 1), put(bucket, 2, is_checkpoint=True)}
        bucket.close()
        assert kvstrata("tiers", "show", url, "--json").json["num_objects"] == 2
        assert kvstrata("tiers", "check", url).code == 0
        assert kvstrata("tiers", "rebuild", url, "--catalogue", catalogue).code == 0
        assert kvstrata("tiers", "collect", url, "--catalogue", catalogue).code == 0
    assert rows(tmp_path, "remote") == held


def without_the_extra(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys\n"
        "for name in ('sqlalchemy', 'alembic', 'obstore'): sys.modules[name] = None\n"
        "from kvstrata.api.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def test_help_needs_no_extra_and_a_command_names_it(folder: Path) -> None:
    for arguments in (("--help",), ("tiers", "--help"), ("tiers", "show", str(folder))):
        found = without_the_extra(*arguments)
        assert (found.returncode, found.stderr) == (0, "")
    expected = "kvstrata: expected the extra \"tiers\": pip install 'kvstrata[tiers]'\n"
    for options in (("rebuild",), ("collect", "--dry-run")):
        found = without_the_extra("tiers", *options, str(folder))
        assert (found.returncode, found.stderr) == (2, expected)
