"""Requests made up from the server's own description: none brings it down, none gets an answer of another shape."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from serving import body, client, configurator

from tonnage.service.app import create_app
from tonnage.store.database import open_database

OPERATIONS = [
    ("/v1/configurations", "POST"), ("/v1/labels/{label}/measurements", "POST"), ("/v1/labels/{label}", "GET"),
    ("/v1/inventory", "GET"), ("/v1/rules", "GET"), ("/v1/servers/self", "GET"), ("/healthz", "GET"),
]  # fmt: skip


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    with open_database(tmp_path_factory.mktemp("openapi") / "labels.db") as database:
        yield schemathesis.openapi.from_asgi("/openapi.json", create_app(configurator(database), ""))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with open_database(tmp_path_factory.mktemp("extremes") / "labels.db") as database:
        yield client(database)


def test_every_operation_is_tried(schema: schemathesis.BaseSchema) -> None:
    described = {(path, method.upper()) for path in schema for method in schema[path]}
    assert described == set(OPERATIONS)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_request_brings_the_server_down(
    schema: schemathesis.BaseSchema, path: str, method: str, mode: GenerationMode, data: st.DataObject
) -> None:
    if mode is GenerationMode.NEGATIVE and (method, path.count("{")) == ("GET", 0):
        return  # there is nothing that could be wrong
    case = data.draw(schema[path][method].as_strategy(generation_mode=mode))
    response = case.call()
    case.validate_response(response, checks=(not_a_server_error,))
    if response.status_code >= 400:
        assert set(response.json()) == {"message", "hint"}


SECONDS = st.sampled_from([0.0, 1e-9, 0.1, 1e9])
BYTES = st.sampled_from([0, 1, 1 << 30, 2**53 - 1])
EXTREMES = st.fixed_dictionaries(
    {f"{name}_seconds": SECONDS for name in ("forward", "backward", "optimizer", "h2d", "d2h", "data_wait", "idle")}
    | dict.fromkeys(("h2d_bytes", "d2h_bytes", "peak_gpu_bytes", "peak_host_bytes"), BYTES)
    | {
        "device": st.sampled_from(["cuda", "cpu"]),
        "step_seconds": st.sampled_from([1e-9, 0.1, 1e9]),
        "loader_workers": st.sampled_from([None, 0, 1, 10_000]),
        "cpu_cores_used": st.sampled_from([None, 0.0, 1e15]),
        "pinned_share": st.sampled_from([0.0, 1.0]),
    }
)
ASKED = st.fixed_dictionaries(
    {
        "most_gpus": st.sampled_from([1, 8, 1024]),
        "run_steps": st.sampled_from([1, 10**12]),
        "gradient_bytes": st.none() | BYTES,
    }
)


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(extremes=EXTREMES, asked=ASKED)
def test_extreme_indicators_get_an_answer(api: TestClient, extremes: dict[str, Any], asked: dict[str, Any]) -> None:
    response = api.post("/v1/configurations", json=body(**extremes) | asked)
    assert response.status_code in (201, 400, 422), response.text
