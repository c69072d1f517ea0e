from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvstrata.core.layout import preset

if TYPE_CHECKING:
    from .conftest import CommandLine


def test_without_a_name_it_lists_the_presets(kvstrata: CommandLine) -> None:
    outcome = kvstrata("layout")
    assert outcome.code == 0
    assert "deepseek-v4-flash" in outcome.out
    assert "3,514.25" in outcome.out
    assert kvstrata("layout", "--json").json["presets"]["deepseek-v4-pro"]["hit_unit"] == 128


def test_a_preset_shows_every_group(kvstrata: CommandLine) -> None:
    outcome = kvstrata("layout", "deepseek-v4-flash")
    assert outcome.code == 0
    for group in preset("deepseek-v4-flash").groups:
        assert group.name in outcome.out
    assert "effective hit unit" in outcome.out


def test_json_carries_the_whole_layout_and_can_be_read_back(
    kvstrata: CommandLine, tmp_path: Path
) -> None:
    written = kvstrata("layout", "deepseek-v4-flash", "--block-tokens", 256, "--json")
    assert written.json["hit_unit"] == 256
    file = tmp_path / "layout.json"
    file.write_text(written.out)
    assert kvstrata("layout", "--file", file, "--json").json == written.json


def test_a_model_config_gives_its_layout(kvstrata: CommandLine, tmp_path: Path) -> None:
    config = {
        "model_type": "deepseek_v4",
        "layer_types": ["compressed_sparse_attention", "heavily_compressed_attention"],
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
        "sliding_window": 16,
        "head_dim": 8,
        "index_head_dim": 8,
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    found = kvstrata("layout", "--file", file, "--dtype", "fp32", "--json").json
    assert found["lcm"] == 16
    assert {"c4", "c16", "c4.index", "swa"} <= set(found["page_bytes"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nonsense", "expected JSON"),
        ("[1]", "expected a JSON object, found list"),
        ('{"model_type": "llama"}', "expected the attributes of DeepseekV4Config"),
        ('{"groups": []}', "expected the fields that CacheLayout.to_json writes"),
    ],
)
def test_a_bad_file_is_one_line(
    kvstrata: CommandLine, tmp_path: Path, content: str, message: str
) -> None:
    file = tmp_path / "layout.json"
    file.write_text(content)
    assert message in kvstrata.refuses("layout", "--file", file)


def test_bad_names_are_one_line(kvstrata: CommandLine, tmp_path: Path) -> None:
    assert "found 'gpt'" in kvstrata.refuses("layout", "gpt")
    assert "found both" in kvstrata.refuses("layout", "gpt", "--file", tmp_path)
    missing = tmp_path / "missing.json"
    assert f"{missing}: No such file" in kvstrata.refuses("layout", "--file", missing)
