"""The configuration server over HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from placing import DIGEST, NOW, SERVERS, indicators
from serving import body, client

from tonnage.configure import label_json
from tonnage.configure.label_annotations import from_annotations
from tonnage.configure.signing import verify
from tonnage.profile.indicators import Indicators
from tonnage.service.bodies import IndicatorsBody
from tonnage.service.size_limit import MOST_BYTES
from tonnage.store.database import open_database


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TestClient]:
    with open_database(tmp_path / "labels.db") as database:
        yield client(database)


def test_it_is_well(server: TestClient) -> None:
    assert server.get("/healthz").json() == {"status": "ok"}


def test_it_says_who_it_is(server: TestClient) -> None:
    said = server.get("/v1/servers/self").json()
    assert said["name"] == "laboratory"
    assert bytes.fromhex(said["public_key"]) == SERVERS["laboratory"].public_key
    assert said["fingerprint"] == SERVERS["laboratory"].fingerprint


def test_it_shows_inventory_and_rules(server: TestClient) -> None:
    inventory, rules = server.get("/v1/inventory").json(), server.get("/v1/rules").json()
    assert inventory["gpus"] == ["H200", "RTX 3090", "RTX 4090"]
    assert any(c["communication"] == "nvlink" and c["gpu_count"] == 8 for c in inventory["candidates"])
    assert "# The preset rules" in rules["text"]
    assert rules["rules"][0]["name"] == "large-gradients"


def test_indicators_are_answered_with_a_label_that_can_be_verified(server: TestClient) -> None:
    answer = server.post("/v1/configurations", json=body() | {"most_gpus": 8, "run_steps": 500})
    assert answer.status_code == 201
    signed = label_json.load(answer.json()["text"].encode())
    label = verify(signed, SERVERS, now=NOW, seen_ids=(), program_digest=DIGEST)
    assert (label.hardware.gpu, label.hardware.gpu_count, label.predicted.steps) == ("H200", 8, 500)
    assert from_annotations(answer.json()["annotations"]) == signed
    assert answer.json()["choice"]["considered"][0]["reason"] == ""


def test_every_label_has_an_id_of_its_own(server: TestClient) -> None:
    ids = {server.post("/v1/configurations", json=body()).json()["label"]["label"]["id"] for _ in range(5)}
    assert len(ids) == 5


OTHER_PARTS = ("backward_seconds", "optimizer_seconds", "h2d_seconds", "idle_seconds")


def test_what_was_measured_stands_beside_what_was_predicted(server: TestClient) -> None:
    answer = server.post("/v1/configurations", json=body()).json()
    label, predicted = answer["label"]["label"]["id"], answer["choice"]["step_seconds"]
    before = server.get(f"/v1/labels/{label}").json()
    assert (before["predicted_step_seconds"], before["measurements"]) == (predicted, [])
    step = predicted * 2
    run = body(gpu="H200", step_seconds=step, forward_seconds=step, **dict.fromkeys(OTHER_PARTS, 0.0))
    measured = server.post(f"/v1/labels/{label}/measurements", json=run)
    assert measured.status_code == 201
    shown = server.get(f"/v1/labels/{label}").json()
    assert shown == measured.json()
    assert shown["measurements"][0]["error"] == pytest.approx(-0.5)
    assert shown["measurements"][0]["indicators"]["gpu"] == "H200"


def test_what_was_measured_is_what_the_next_answer_goes_by(server: TestClient) -> None:
    def ask() -> Any:
        return server.post("/v1/configurations", json=body(gpu="RTX 3090")).json()

    first = ask()
    chosen = first["choice"]["configuration"]["gpu"]
    measured = {"forward_seconds": 0.3, "backward_seconds": 0.5, "step_seconds": 0.9, "idle_seconds": 0.095}
    label = first["label"]["label"]["id"]
    assert first["choice"]["basis"] == "ratio"
    posted = server.post(f"/v1/labels/{label}/measurements", json=body(gpu=chosen, **measured))
    assert posted.status_code == 201
    again = {one["name"]: one for one in ask()["choice"]["considered"]}
    of_gpu = [one for one in again.values() if one["configuration"] and one["configuration"]["gpu"] == chosen]
    assert {one["basis"] for one in of_gpu} == {"measured"}
    assert min(one["step_seconds"] for one in of_gpu) > 0.8


def test_indicators_of_another_program_are_no_measurement(server: TestClient) -> None:
    label = server.post("/v1/configurations", json=body()).json()["label"]["label"]["id"]
    answer = server.post(f"/v1/labels/{label}/measurements", json=body(program_digest="sha256:" + "b" * 64))
    assert answer.status_code == 400
    assert "for another program" in answer.json()["message"]


@pytest.mark.parametrize(
    ("change", "message"),
    [({"gpu": "L4"}, "is for H200, these indicators are of L4"), ({"basis": "predicted"}, "predicted, not measured")],
)
def test_only_what_the_label_is_for_is_a_measurement(server: TestClient, change: dict[str, Any], message: str) -> None:
    label = server.post("/v1/configurations", json=body()).json()["label"]["label"]["id"]
    answer = server.post(f"/v1/labels/{label}/measurements", json=body(**{"gpu": "H200"} | change))
    assert answer.status_code == 400
    assert message in answer.json()["message"]


def test_a_label_that_was_never_issued_is_not_found(server: TestClient) -> None:
    assert server.get(f"/v1/labels/{'f' * 32}").status_code == 404
    assert server.post(f"/v1/labels/{'f' * 32}/measurements", json=body()).status_code == 404


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"forward_seconds": -1.0}, "indicators.forward_seconds: Input should be greater than or equal to 0"),
        ({"forward_seconds": "0.1"}, "indicators.forward_seconds: Input should be a valid number"),
        ({"step_seconds": 0.0}, "indicators.step_seconds: Input should be greater than 0"),
        ({"step_seconds": 1e300}, "indicators.step_seconds"),
        ({"h2d_bytes": 1.5}, "indicators.h2d_bytes"),
        ({"h2d_bytes": True}, "indicators.h2d_bytes"),
        ({"steps": 0}, "indicators.steps"),
        ({"program": "a\0b"}, "indicators.program"),
        ({"program_digest": "md5:0"}, "indicators.program_digest"),
        ({"device": "tpu"}, "indicators.device"),
        ({"pinned_share": 1.5}, "indicators.pinned_share"),
    ],
)
def test_a_wrong_indicator_is_named(server: TestClient, change: dict[str, Any], message: str) -> None:
    answer = server.post("/v1/configurations", json={"indicators": indicators().as_dict() | change})
    assert answer.status_code == 422
    assert message in answer.json()["message"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(server: TestClient, number: str) -> None:
    text = json.dumps(body()).replace('"forward_seconds": 0.03', f'"forward_seconds": {number}')
    answer = server.post("/v1/configurations", content=text, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert "forward_seconds" in answer.json()["message"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"indicators": {}}', "[" * 100_000, '"\\ud800"', "\xff"])
def test_what_is_no_request_is_refused(server: TestClient, text: str) -> None:
    answer = server.post(
        "/v1/configurations", content=text.encode("latin-1"), headers={"content-type": "application/json"}
    )
    assert answer.status_code in (400, 422)
    assert answer.json()["message"]


def test_an_unknown_gpu_is_not_found(server: TestClient) -> None:
    answer = server.post("/v1/configurations", json=body(gpu="RTX 9999"))
    assert answer.status_code == 404
    assert answer.json()["message"] == "unknown GPU 'RTX 9999'"


def test_an_inventory_in_which_nothing_fits_says_what_binds(server: TestClient) -> None:
    answer = server.post("/v1/configurations", json=body(peak_gpu_bytes=1 << 40))
    assert answer.status_code == 422
    assert "GPU memory binds" in answer.json()["message"]


def test_a_request_that_is_too_large_is_refused(server: TestClient) -> None:
    announced = server.post("/v1/configurations", content=b" " * (MOST_BYTES + 1))
    streamed = server.post("/v1/configurations", content=(b" " * 65536 for _ in range(MOST_BYTES // 65536 + 1)))
    assert announced.status_code == streamed.status_code == 413
    assert "a request may have" in announced.json()["message"]
    assert "a request may have" in streamed.json()["message"]


def test_errors_have_one_shape(server: TestClient) -> None:
    for answer in (server.get("/nowhere"), server.put("/v1/rules"), server.get("/v1/labels/x")):
        assert set(answer.json()) == {"message", "hint"}


def test_the_body_takes_every_indicator() -> None:
    assert set(Indicators.__dataclass_fields__) <= set(IndicatorsBody.model_fields)
