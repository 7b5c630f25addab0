"""The official clients of Triton, all four, against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient", reason="tritonclient is not installed: pip install 'tritonclient[http,grpc]'")

from repository_models import save_sum
from served_models import CLASSES, ONNX_TYPES, make_repository
from server_rig import Served, serving
from triton_clients import KINDS, Client, connected, random_array

ALL_BUT_BF16 = [kind for kind in ONNX_TYPES if kind != "BF16"]
pytestmark = [
    pytest.mark.slow,
    # gevent and aiohttp leave sockets and loops to the end of the interpreter.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    repository = make_repository(tmp_path_factory.mktemp("models"))
    with serving(repository) as started:
        yield started


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, served: Served) -> Iterator[Client]:
    with connected(request.param, served) as made:
        yield made


@pytest.fixture(params=["http", "http.aio"])
def rest(request: pytest.FixtureRequest, served: Served) -> Iterator[Client]:
    with connected(request.param, served) as made:
        yield made


def added(client: Client, rows: int = 2, seed: int = 0, **options: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """The answer of the model with two inputs, and what they were."""
    one, two = random_array("FP32", (rows, 4), seed), random_array("FP32", (rows, 4), seed + 1)
    inputs = [client.input("INPUT0", one), client.input("INPUT1", two)]
    return client.infer("add_sub", inputs, **options), one, two


# -- what the server and its models are -----------------------------------------------------------------------------------


def test_the_server_is_live_and_ready(client: Client) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()


def test_models_are_ready_and_unknown_ones_are_not(client: Client) -> None:
    assert client.is_model_ready("add_sub")
    assert client.is_model_ready("two_versions", "1")
    assert not client.is_model_ready("nobody")
    assert not client.is_model_ready("two_versions", "7")


def test_the_server_tells_its_name_and_extensions(client: Client) -> None:
    told = client.get_server_metadata()
    assert told["name"] == "tonnage"
    assert {"binary_tensor_data", "system_shared_memory", "statistics"} <= set(told["extensions"])


def test_metadata_has_names_shapes_and_datatypes(client: Client) -> None:
    told = client.get_model_metadata("add_sub")
    assert told["versions"] == ["1"]
    assert [each["name"] for each in told["inputs"]] == ["INPUT0", "INPUT1"]
    assert [int(size) for size in told["outputs"][1]["shape"]] == [-1, 4]
    assert told["outputs"][1]["datatype"] == "FP32"


def test_metadata_names_all_versions_that_are_served(client: Client) -> None:
    assert client.get_model_metadata("two_versions")["versions"] == ["1", "2"]


def test_the_configuration_is_completed_from_the_model(client: Client) -> None:
    told = client.get_model_config("add_sub")
    told = told if client.is_rest else told["config"]
    assert told["max_batch_size"] == 32
    assert told["input"][0]["data_type"] == "TYPE_FP32"
    assert [int(size) for size in told["input"][0]["dims"]] == [4]
    assert told["backend"] == "onnxruntime"
    assert "dynamic_batching" in told


def test_statistics_count_requests_and_rows(client: Client) -> None:
    before = _statistics(client)
    added(client, rows=3)
    after = _statistics(client)
    assert int(after["inference_count"]) - int(before["inference_count"]) == 3
    assert int(after["inference_stats"]["success"]["count"]) - int(before["inference_stats"]["success"]["count"]) == 1
    assert int(after["inference_stats"]["compute_infer"]["ns"]) > int(before["inference_stats"]["compute_infer"]["ns"])


def test_statistics_of_all_models_are_told_together(client: Client) -> None:
    told = client.get_inference_statistics()["model_stats"]
    assert {"add_sub", "fixed", "caffe"} <= {each["name"] for each in told}


def test_the_index_lists_every_model(client: Client) -> None:
    told = client.get_model_repository_index()
    told = told if client.is_rest else told["models"]
    assert {each["name"] for each in told} >= set(
        "every_type add_sub fixed long scores exported scripted caffe".split()
    )
    assert {each["state"] for each in told if each["name"] == "two_versions"} == {"READY"}


def _statistics(client: Client) -> dict[str, Any]:
    told = client.get_inference_statistics("add_sub", "1")["model_stats"][0]
    zero = {"count": "0", "ns": "0"}  # JSON of messages leaves out what is 0
    stats = {name: {**zero, **told.get("inference_stats", {}).get(name, {})} for name in ("success", "compute_infer")}
    return {"inference_count": told.get("inference_count", 0), "inference_stats": stats}


# -- inference ------------------------------------------------------------------------------------------------------------


def test_both_outputs_are_computed(client: Client) -> None:
    result, one, two = added(client)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), one + two)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), one - two)


def test_every_datatype_comes_back_as_it_was_sent(client: Client) -> None:
    for model, kinds in (("every_type", ALL_BUT_BF16), ("halves", ["BF16", "INT32"])):
        sent = {kind: random_array(kind, (3, 2), seed) for seed, kind in enumerate(kinds)}
        result = client.infer(model, [client.input(f"in_{kind}", each, datatype=kind) for kind, each in sent.items()])
        for kind, each in sent.items():
            np.testing.assert_array_equal(result.as_numpy(f"out_{kind}"), each, err_msg=kind)


def test_numbers_strings_and_truths_go_as_json(rest: Client) -> None:
    sent = {kind: random_array(kind, (3, 2), seed) for seed, kind in enumerate(ALL_BUT_BF16)}
    binary = ("FP16",)  # which JSON has no form for
    inputs = [rest.input(f"in_{kind}", each, datatype=kind, binary_data=kind in binary) for kind, each in sent.items()]
    outputs = [rest.output(f"out_{kind}", binary_data=kind in binary) for kind in sent]
    result = rest.infer("every_type", inputs, outputs=outputs)
    for kind, each in sent.items():
        got = result.as_numpy(f"out_{kind}")
        wanted = each if kind != "BYTES" else np.array([value.decode() for value in each.ravel()]).reshape(3, 2)
        np.testing.assert_array_equal(got.astype(wanted.dtype), wanted, err_msg=kind)


def test_json_in_and_json_out(rest: Client) -> None:
    values = np.arange(6, dtype=np.int32).reshape(2, 3)
    inputs = [rest.input("x", values, binary_data=False)]
    result = rest.infer("fixed", inputs, outputs=[rest.output("y", binary_data=False)])
    assert result.get_response()["outputs"][0]["data"] == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_bodies_are_compressed_both_ways(client: Client, algorithm: str) -> None:
    both = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
    result, one, two = added(client, **both if client.is_rest else {"compression_algorithm": algorithm})
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), one + two)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_large_bodies_are_compressed_both_ways(rest: Client, algorithm: str) -> None:
    values = random_array("FP32", (500_000,))
    both = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
    result = rest.infer("long", [rest.input("x", values)], **both)
    np.testing.assert_array_equal(result.as_numpy("y"), -values)


def test_large_tensors_come_back(client: Client) -> None:
    values = random_array("FP32", (2_000_000,))
    np.testing.assert_array_equal(client.infer("long", [client.input("x", values)]).as_numpy("y"), -values)


def test_empty_tensors_come_back_empty(client: Client) -> None:
    values = np.zeros((0,), np.float32)
    result = client.infer("long", [client.input("x", values)])
    assert result.as_numpy("y").shape == (0,)


def test_a_request_id_comes_back(client: Client) -> None:
    result, _, _ = added(client, request_id="request-17")
    response = result.get_response()
    assert (response["id"] if client.is_rest else response.id) == "request-17"


def test_only_outputs_that_are_asked_for_come(client: Client) -> None:
    result, one, two = added(client, outputs=[client.output("OUTPUT1")])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), one - two)
    assert result.as_numpy("OUTPUT0") is None


def test_outputs_come_as_bytes_and_as_json_in_one_answer(rest: Client) -> None:
    outputs = [rest.output("OUTPUT0", binary_data=True), rest.output("OUTPUT1", binary_data=False)]
    result, one, two = added(rest, outputs=outputs)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), one + two)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), one - two)


def test_a_version_can_be_asked_for(client: Client) -> None:
    values = np.array([1.0, -2.0], np.float32)
    inputs = [client.input("x", values)]
    for version, wanted in (("1", 2 * values), ("2", -values), ("", -values)):
        result = client.infer("two_versions", inputs, model_version=version)
        np.testing.assert_array_equal(result.as_numpy("y"), wanted)


def test_priority_and_timeout_are_taken(client: Client) -> None:
    inputs = [client.input("x", random_array("FP32", (1, 4)))]
    result = client.infer("scores", inputs, priority=1, timeout=60_000_000)
    assert result.as_numpy("y").shape == (1, 4)


def test_parameters_of_a_clients_own_are_passed_over(client: Client) -> None:
    result, one, two = added(client, parameters={"colour": "red", "count": 3, "is_it": True})
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), one + two)


def test_the_best_classes_are_named(client: Client) -> None:
    values = np.array([[0.1, 0.5, 0.25, 0.0], [3.0, -1.0, 2.0, 1.0]], np.float32)
    result = client.infer("scores", [client.input("x", values)], outputs=[client.output("y", class_count=2)])
    rows = [[text.decode() for text in row] for row in result.as_numpy("y")]
    assert [[text.split(":")[1:] for text in row] for row in rows] == [
        [["1", CLASSES[1]], ["2", CLASSES[2]]],
        [["0", CLASSES[0]], ["2", CLASSES[2]]],
    ]
    assert float(rows[0][0].split(":")[0]) == 0.5


def test_exported_programs_take_bf16(client: Client) -> None:
    values = random_array("BF16", (5, 3))
    result = client.infer("exported", [client.input("x", values, datatype="BF16")])
    np.testing.assert_array_equal(result.as_numpy("output"), 2 * values)


def test_torchscript_is_served(client: Client) -> None:
    values = random_array("FP32", (3, 3))
    result = client.infer("scripted", [client.input("x", values)])
    np.testing.assert_array_equal(result.as_numpy("y"), np.maximum(values, 0))


def test_caffe_is_served(client: Client) -> None:
    result = client.infer("caffe", [client.input("data", random_array("FP32", (1, 4)))])
    np.testing.assert_allclose(result.as_numpy("prob").sum(), 1.0, rtol=1e-6)


# -- loading --------------------------------------------------------------------------------------------------------------


def test_a_model_is_unloaded_and_loaded(client: Client) -> None:
    client.unload_model("fixed")
    assert not client.is_model_ready("fixed")
    client.load_model("fixed")
    assert client.is_model_ready("fixed")


def test_a_model_is_loaded_with_another_configuration(client: Client) -> None:
    client.load_model("add_sub", config=json.dumps({"max_batch_size": 3}))
    try:
        assert client.status_of("infer", "add_sub", _inputs(client, 4)) == "400"
        result, one, two = added(client, rows=3)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), one + two)
    finally:
        client.load_model("add_sub")
    result, one, two = added(client, rows=4)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), one + two)


def test_a_model_is_loaded_from_files_that_a_client_sends(client: Client, tmp_path: Path) -> None:
    """It is in no repository, and its files go when it is unloaded."""
    save_sum(tmp_path / "sum.onnx", factor=3.0)
    content = (tmp_path / "sum.onnx").read_bytes()
    client.load_model("sent", config="{}", files={"file:1/model.onnx": content, "file:7/model.onnx": content})
    try:
        assert client.is_model_ready("sent", "7")
        one = random_array("FP32", (2, 3))
        result = client.infer("sent", [client.input("a", one), client.input("b", one)])
        np.testing.assert_allclose(result.as_numpy("y"), 6 * one, rtol=1e-6)
    finally:
        client.unload_model("sent")
    assert not client.is_model_ready("sent")


@pytest.mark.parametrize(
    ("files", "config"),
    [
        ({"file:1/model.onnx": b"nothing"}, None),
        ({"file:../model.onnx": b"nothing"}, "{}"),
        ({"file:/tmp/model.onnx": b"nothing"}, "{}"),
        ({"file:": b"nothing"}, "{}"),
        ({"file:1/model.onnx": b"no model"}, "{}"),
        ({"file:model.onnx": b"no version"}, "{}"),
    ],
)
def test_files_that_are_no_model_are_refused(client: Client, files: dict[str, bytes], config: str | None) -> None:
    assert client.status_of("load_model", "sent", config=config, files=files) in ("400", "422")
    assert client.is_model_ready("add_sub")


def _inputs(client: Client, rows: int) -> list[Any]:
    return [client.input(name, random_array("FP32", (rows, 4))) for name in ("INPUT0", "INPUT1")]


# -- shared memory --------------------------------------------------------------------------------------------------------


@pytest.fixture
def region(tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """64 bytes, and their key."""
    from tritonclient.utils import shared_memory

    key = f"/tonnage-{tmp_path.name}"
    made = shared_memory.create_shared_memory_region("region", key, 64)
    yield made, key
    shared_memory.destroy_shared_memory_region(made)


def test_tensors_are_read_from_and_written_to_shared_memory(client: Client, region: tuple[Any, str]) -> None:
    from tritonclient.utils import shared_memory

    memory, key = region
    values = random_array("FP32", (1, 4))
    shared_memory.set_shared_memory_region(memory, [values, 2 * values])
    client.register_system_shared_memory("region", key, 64)
    try:
        inputs = [client.module.InferInput(name, (1, 4), "FP32") for name in ("INPUT0", "INPUT1")]
        inputs[0].set_shared_memory("region", 16)
        inputs[1].set_shared_memory("region", 16, offset=16)
        output = client.output("OUTPUT0")
        output.set_shared_memory("region", 16, offset=32)
        result = client.infer("add_sub", inputs, outputs=[output, client.output("OUTPUT1")])
        np.testing.assert_array_equal(
            shared_memory.get_contents_as_numpy(memory, np.float32, (1, 4), offset=32), 3 * values
        )
        np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), -values)
    finally:
        client.unregister_system_shared_memory("region")


def test_regions_are_listed_until_they_are_unregistered(client: Client, region: tuple[Any, str]) -> None:
    client.register_system_shared_memory("region", region[1], 32, offset=16)
    told = client.get_system_shared_memory_status()
    found = told[0] if client.is_rest else told["regions"]["region"]
    assert (found["name"], found["key"], int(found["offset"]), int(found["byte_size"])) == (
        "region", region[1], 16, 32,
    )  # fmt: skip
    client.unregister_system_shared_memory()
    assert client.get_system_shared_memory_status() in ([], {})


def test_memory_that_is_not_there_is_refused(client: Client, region: tuple[Any, str]) -> None:
    assert client.status_of("register_system_shared_memory", "other", "/tonnage-nothing", 64) == "400"
    assert client.status_of("register_system_shared_memory", "other", region[1], 1 << 20) == "400"
    inputs = _inputs(client, 1)
    inputs[0].set_shared_memory("unknown", 16)
    assert client.status_of("infer", "add_sub", inputs) == "404"


# -- refusals -------------------------------------------------------------------------------------------------------------


def test_unknown_models_are_not_found(client: Client) -> None:
    inputs = [client.input("x", np.zeros(2, np.float32))]
    assert client.status_of("infer", "nobody", inputs) == "404"
    assert client.status_of("get_model_metadata", "nobody") == "404"


def test_wrong_inputs_are_invalid(client: Client) -> None:
    good = random_array("FP32", (1, 4))
    other = client.input("INPUT1", good)
    wrong = [
        client.input("INPUT0", good.astype(np.float64)),
        client.input("INPUT0", good[:, :3]),
        client.input("INPUT0", good[0]),
        client.input("INPUT9", good),
        client.input("INPUT0", random_array("FP32", (40, 4))),
    ]
    assert [client.status_of("infer", "add_sub", [each, other]) for each in wrong] == ["400"] * len(wrong)
    assert client.status_of("infer", "add_sub", [other]) == "400"


def test_unknown_outputs_are_invalid(client: Client) -> None:
    assert client.status_of("infer", "add_sub", _inputs(client, 1), outputs=[client.output("OUTPUT9")]) == "400"


def test_shared_memory_of_cuda_has_no_regions(client: Client) -> None:
    assert client.get_cuda_shared_memory_status() in ([], {})
    client.unregister_cuda_shared_memory()
