"""What the API says of prefixes below the device, with a real tier in a folder."""

from __future__ import annotations

from pathlib import Path

from fastapi.testclient import TestClient

from kvstrata.api.server.app import create_app
from kvstrata.api.server.settings import ServerSettings
from kvstrata.eventstore.history.follower import Follower
from tests.api.server.support import HERE
from tests.cases.support import prefill, text
from tests.face.tiered import corner, tiering_of


def test_tiers_are_told_with_what_lies_in_them(tmp_path: Path) -> None:
    tokens = text(("stored", 100))
    url = f"sqlite:///{tmp_path / 'catalogue.sqlite'}"
    with corner() as place, place.opened() as cache:
        prefill(cache, tokens).finish()
        assert cache.settle_tiers(30)
        cache.flush()
        with Follower(place.root / "log", shared_memory_root=place.root / "shared") as follower:
            while follower.step():
                pass
            app = create_app(follower, ServerSettings(catalogue=url), place.root / "shared")
            with TestClient(app, base_url=HERE) as client:
                check(client, tiering_of(cache).stats().stored["disk"]["blocks"])


def check(client: TestClient, num_blocks: int) -> None:
    found = client.get("/v1/tiers").json()
    [tier] = found["tiers"]
    assert tier["name"] == "disk"
    assert tier["num_blocks"] == num_blocks > 0
    assert found["spills"]["objects"] >= num_blocks
    objects = client.get("/v1/tiers/objects", params={"tier": "disk"}).json()["items"]
    assert len([one for one in objects if one["block_tiers"] == ["disk"]]) == num_blocks
    assert client.get("/v1/tiers/objects", params={"tier": "tape"}).status_code == 404
    rows = client.get("/v1/blocks", params={"tier": "disk", "kind": "COMPRESSED"}).json()["items"]
    assert rows
    assert all(row["tiers"] == ["device", "disk"] for row in rows)
    keys = {one["key"] for one in objects}
    assert {row["key"] for row in rows} <= keys
    segment = client.get(f"/v1/segments/{rows[0]['key']}").json()
    assert segment["block_tiers"] == ["device", "disk"]
