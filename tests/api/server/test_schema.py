"""The whole OpenAPI document, asked at random: no failure, no answer that it does not describe."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok

from tests.api.server.support import OPERATOR, TOKENS, Served, served
from tests.eventstore.support import shared_corner
from tests.face.support import Place

EXAMPLES = int(os.environ.get("KVSTRATA_SCHEMA_EXAMPLES", "8"))
"""Of each operation; more by environment variable."""


@pytest.fixture(scope="module")
def served_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("schema")
    tokens = folder / "tokens"
    tokens.write_text(TOKENS)
    limits = {"stream_max_s": 0.05, "max_streams": 100, "max_waiting_commands": 10**6}
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        place = Place(corner / "log", corner / "shared")
        with served(place, folder, {**limits, "token_file": tokens}) as found:
            yield found


def operations(api: Served) -> list[tuple[str, str]]:
    return [
        (method.upper(), path)
        for path, methods in api.app.openapi()["paths"].items()
        for method in methods
    ]


def test_no_answer_fails_or_breaks_the_document(served_once: Served) -> None:
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    schema = schemathesis.openapi.from_asgi("/openapi.json", served_once.app, headers=headers)
    asked = []
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        asked.append((operation.method.upper(), operation.path))
        cases = st.one_of(
            operation.as_strategy(GenerationMode.POSITIVE),
            operation.as_strategy(GenerationMode.NEGATIVE),
        )

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases)
        def ask(case: Case) -> None:
            case.call_and_validate(headers=headers)

        ask()
    assert sorted(asked) == sorted(operations(served_once))
    assert served_once.get("/readyz")["is_ready"]
    served_once.cache.check_integrity()
