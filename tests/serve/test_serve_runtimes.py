"""What the files of models say, and what runs them, in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from repository_models import (
    Named,
    Scaled,
    WithDefault,
    graph,
    save_exported,
    save_scripted,
    save_sum,
    value,
    version,
)

from tonnage.errors import InvalidFile, TonnageError, UsageError
from tonnage.serve.configuration import ModelConfiguration, TensorSpec
from tonnage.serve.configuration_file import read_configuration
from tonnage.serve.deriving import completed
from tonnage.serve.repository import read_folder
from tonnage.serve.runtimes import LoadOrder, Runtime, load_runtime, with_model_file
from tonnage.serve.runtimes.reshaping import shown


def opened(folder: Path, model: str = "m") -> tuple[Runtime, ModelConfiguration]:
    """As an instance does it."""
    found = read_folder(folder / model)
    settings, path = with_model_file(read_configuration(found), found.versions[1])
    runtime = load_runtime(LoadOrder(backend=settings.backend, path=str(path), configuration=settings))
    return runtime, completed(settings, runtime)


def told(specs: tuple[Any, ...]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(spec.name, spec.datatype, spec.dims) for spec in specs]


def rows(*values: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.float32([[number] * 3 for number in values])


# -- ONNX -----------------------------------------------------------------------------------------------------------------


def test_an_onnx_file_tells_its_tensors_and_that_it_takes_batches(tmp_path: Path) -> None:
    save_sum(version(tmp_path, "m") / "model.onnx", factor=2.0)
    runtime, configuration = opened(tmp_path)
    assert told(configuration.inputs) == [("a", "FP32", (3,)), ("b", "FP32", (3,))]
    assert told(configuration.outputs) == [("y", "FP32", (3,))]
    assert configuration.max_batch_size == 32
    assert configuration.batching is not None
    assert runtime.run({"a": rows(1, 2), "b": rows(10, 20)}, ())["y"].tolist() == rows(22, 44).tolist()


@pytest.mark.parametrize("first", [4, None])
def test_a_first_axis_that_is_fixed_or_has_no_name_is_no_batch(tmp_path: Path, first: Any) -> None:
    save_sum(version(tmp_path, "m") / "model.onnx", first)
    _, configuration = opened(tmp_path)
    assert configuration.max_batch_size == 0
    assert configuration.inputs[0].dims == (-1 if first is None else 4, 3)


def test_a_size_that_comes_up_twice_is_no_batch(tmp_path: Path) -> None:
    nodes = [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    made = graph(nodes, [value("x", ["n", 3])], [value("y", ["n", "n"])])
    onnx.save(made, version(tmp_path, "m") / "model.onnx")
    assert opened(tmp_path)[1].max_batch_size == 0


def test_weights_may_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    made = graph(nodes, [value("x", ["n", 512])], [value("y", ["n", 512])], {"w": np.ones(512, np.float32)})
    folder = version(tmp_path, "m")
    onnx.save(made, folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    runtime, _ = opened(tmp_path)
    assert runtime.run({"x": np.zeros((1, 512), np.float32)}, ())["y"].sum() == 512
    (folder / "weights.bin").unlink()
    with pytest.raises(InvalidFile, match=r"model\.onnx: .*weights\.bin"):
        opened(tmp_path)


def test_an_input_with_a_value_in_the_file_is_optional(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "scale"], ["y"])]
    inputs = [value("x", ["n", 3]), value("scale", [1])]
    folder = version(tmp_path, "m")
    onnx.save(graph(nodes, inputs, [value("y", ["n", 3])], {"scale": np.float32([5])}), folder / "model.onnx")
    assert told(opened(tmp_path)[1].inputs) == [("x", "FP32", (3,))]
    tensors = 'input { name: "x" data_type: TYPE_FP32 dims: [-1, 3] } '
    tensors += 'input { name: "scale" data_type: TYPE_FP32 dims: [1] optional: true } '
    version(tmp_path, "m", configuration=tensors + 'output { name: "y" data_type: TYPE_FP32 dims: [-1, 3] }')
    runtime, configuration = opened(tmp_path)
    assert [spec.optional for spec in configuration.inputs] == [False, True]
    assert runtime.run({"x": rows(1)}, ())["y"][0, 0] == 5
    assert runtime.run({"x": rows(1), "scale": np.float32([7])}, ())["y"][0, 0] == 7


def test_an_input_that_the_file_needs_cannot_be_optional(tmp_path: Path) -> None:
    tensors = "".join(
        f'input {{ name: "{name}" data_type: TYPE_FP32 dims: [-1, 3] optional: true }} ' for name in ("a", "b")
    )
    save_sum(version(tmp_path, "m", configuration=tensors) / "model.onnx")
    with pytest.raises(InvalidFile, match="input 'a' of m is optional in the configuration"):
        opened(tmp_path)


def test_brain_floats_go_in_and_out(tmp_path: Path) -> None:
    kind = TensorProto.BFLOAT16
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["f", "f"], ["g"]),
        helper.make_node("Cast", ["g"], ["y"], to=kind),
    ]
    made = graph(nodes, [value("x", ["n", 3], kind)], [value("y", ["n", 3], kind)])
    onnx.save(made, version(tmp_path, "m") / "model.onnx")
    runtime, configuration = opened(tmp_path)
    assert told(configuration.inputs) == [("x", "BF16", (3,))]
    assert runtime.run({"x": rows(1.5)}, ())["y"].tolist() == rows(3).tolist()


def test_strings_go_in_and_out(tmp_path: Path) -> None:
    kind = TensorProto.STRING
    made = graph(
        [helper.make_node("Identity", ["x"], ["y"])], [value("x", ["n", 1], kind)], [value("y", ["n", 1], kind)]
    )
    onnx.save(made, version(tmp_path, "m") / "model.onnx")
    runtime, _ = opened(tmp_path)
    made_text = runtime.run({"x": np.array([["é".encode()]], dtype=object)}, ())["y"]
    assert made_text.tolist() == [["é"]]
    with pytest.raises(UsageError, match="not UTF-8"):
        runtime.run({"x": np.array([[b"\xff"]], dtype=object)}, ())


@pytest.mark.parametrize(("dims", "shape"), [("3", (2, 3)), ("3, 1", (2, 3, 1)), ("1, 3", (2, 1, 3))])
def test_outputs_are_reshaped_to_what_clients_see(tmp_path: Path, dims: str, shape: tuple[int, ...]) -> None:
    tensors = f'max_batch_size: 4 output {{ name: "y" data_type: TYPE_FP32 dims: [{dims}] reshape {{ shape: 3 }} }}'
    save_sum(version(tmp_path, "m", configuration=tensors) / "model.onnx")
    runtime, _ = opened(tmp_path)
    assert runtime.run({"a": rows(1, 2), "b": rows(1, 2)}, ())["y"].shape == shape


def test_open_sizes_of_a_reshaped_output_are_those_of_the_model() -> None:
    spec = TensorSpec(name="y", datatype="FP32", dims=(-1, 1, -1), reshape=(-1, -1, 1))
    assert shown(spec, (5, 7, 1)) == (5, 1, 7)


def test_an_output_that_is_no_tensor_must_be_left_out(tmp_path: Path) -> None:
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["list"]), helper.make_node("Neg", ["x"], ["y"])]
    outputs = [helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, None), value("y", ["n", 3])]
    onnx.save(graph(nodes, [value("x", ["n", 3])], outputs), version(tmp_path, "m") / "model.onnx")
    with pytest.raises(InvalidFile, match=r"list is a seq\(tensor\(float\)\), which the protocol cannot carry"):
        opened(tmp_path)
    version(tmp_path, "m", configuration='max_batch_size: 4 output { name: "y" data_type: TYPE_FP32 dims: 3 }')
    runtime, configuration = opened(tmp_path)
    assert told(configuration.outputs) == [("y", "FP32", (3,))]
    assert runtime.run({"x": rows(1)}, ())["y"].tolist() == rows(-1).tolist()


# -- torch.export ---------------------------------------------------------------------------------------------------------


def test_an_exported_file_tells_its_tensors_and_its_largest_batch(tmp_path: Path) -> None:
    rows_open = torch.export.Dim("rows", max=8)
    shapes = {"x": {0: rows_open}, "offset": {0: rows_open}}
    save_exported(version(tmp_path, "m") / "model.pt2", Scaled(), (torch.zeros(2, 3), torch.zeros(2, 3)), shapes)
    runtime, configuration = opened(tmp_path)
    assert told(configuration.inputs) == [("x", "FP32", (3,)), ("offset", "FP32", (3,))]
    assert told(configuration.outputs) == [("output", "FP32", (3,))]
    assert configuration.max_batch_size == 8
    for count in (1, 5):
        given = {"x": rows(*[1] * count), "offset": rows(*[4] * count)}
        assert runtime.run(given, ())["output"].tolist() == rows(*[6] * count).tolist()
    version(tmp_path, "m", configuration="max_batch_size: 9")
    with pytest.raises(InvalidFile, match="max_batch_size of m is 9, but its file takes at most 8 rows"):
        opened(tmp_path)


def test_a_configuration_may_rename_exported_tensors(tmp_path: Path) -> None:
    tensors = "".join(f'input {{ name: "IN__{n}" data_type: TYPE_FP32 dims: [2, 3] }} ' for n in (0, 1))
    tensors += 'output { name: "OUT__0" data_type: TYPE_FP32 dims: [2, 3] }'
    folder = version(tmp_path, "m", configuration=tensors)
    save_exported(folder / "model.pt2", Scaled(), (torch.zeros(2, 3), torch.zeros(2, 3)))
    runtime, _ = opened(tmp_path)
    assert runtime.run({"IN__0": rows(1, 2), "IN__1": rows(0, 0)}, ())["OUT__0"].tolist() == rows(2, 4).tolist()


def test_dictionaries_of_exported_models_are_tensors_with_their_keys(tmp_path: Path) -> None:
    batch = {"left": torch.zeros(2, 3), "right": torch.zeros(2, 3)}
    save_exported(version(tmp_path, "m") / "model.pt2", Named(), (batch, 4.0))
    runtime, configuration = opened(tmp_path)
    assert [spec.name for spec in configuration.inputs] == ["left", "right"]
    assert [spec.name for spec in configuration.outputs] == ["sum", "left_scaled"]
    made = runtime.run({"left": rows(1, 1), "right": rows(2, 2)}, ())
    assert made["sum"].tolist() == rows(3, 3).tolist()
    assert made["left_scaled"].tolist() == rows(4, 4).tolist()


# -- TorchScript ----------------------------------------------------------------------------------------------------------

TENSORS = '{kind} {{ name: "{name}" data_type: TYPE_FP32 dims: [3] {more} }} '


def scripted(
    tmp_path: Path, module: torch.nn.Module, inputs: list[str], outputs: list[str], optional: str = ""
) -> Path:
    tensors = "max_batch_size: 8 "
    for name in inputs:
        tensors += TENSORS.format(kind="input", name=name, more="optional: true" if name == optional else "")
    for name in outputs:
        tensors += TENSORS.format(kind="output", name=name, more="")
    file = version(tmp_path, "m", configuration=tensors) / "model.pt"
    save_scripted(file, module)
    return file


@pytest.mark.parametrize("names", [["x", "offset"], ["INPUT__0", "INPUT__1"], ["first", "second"]])
def test_inputs_of_torchscript_are_found_by_name_number_or_place(tmp_path: Path, names: list[str]) -> None:
    scripted(tmp_path, Scaled(), names, ["OUTPUT__0"])
    runtime, configuration = opened(tmp_path)
    assert configuration.max_batch_size == 8
    assert runtime.run({names[0]: rows(1), names[1]: rows(5)}, ())["OUTPUT__0"].tolist() == rows(7).tolist()


@pytest.mark.parametrize("names", [["offset", "x"], ["INPUT__1", "INPUT__0"]])
def test_inputs_of_torchscript_may_stand_in_any_order(tmp_path: Path, names: list[str]) -> None:
    scripted(tmp_path, Scaled(), names, ["y"])
    runtime, _ = opened(tmp_path)
    assert runtime.run({names[0]: rows(5), names[1]: rows(1)}, ())["y"].tolist() == rows(7).tolist()


def test_an_argument_with_a_default_is_optional(tmp_path: Path) -> None:
    scripted(tmp_path, WithDefault(), ["x", "mask"], ["OUTPUT__0", "OUTPUT__1"], optional="mask")
    runtime, _ = opened(tmp_path)
    assert runtime.run({"x": rows(3)}, ("OUTPUT__0",))["OUTPUT__0"][0, 0] == 3
    assert runtime.run({"x": rows(3), "mask": rows(0)}, ())["OUTPUT__0"][0, 0] == 0


def test_outputs_that_nobody_names_are_left_out(tmp_path: Path) -> None:
    scripted(tmp_path, WithDefault(), ["x"], ["OUTPUT__1"])
    runtime, _ = opened(tmp_path)
    assert runtime.run({"x": rows(3)}, ())["OUTPUT__1"][0, 0] == 4


def test_dictionaries_of_torchscript_are_tensors_with_their_keys(tmp_path: Path) -> None:
    class Dictionary(torch.nn.Module):
        def forward(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"sum": batch["left"] + batch["right"]}

    scripted(tmp_path, Dictionary(), ["left", "right"], ["sum"])
    runtime, _ = opened(tmp_path)
    assert runtime.run({"left": rows(1), "right": rows(2)}, ())["sum"][0, 0] == 3


def test_too_few_outputs_are_the_fault_of_the_configuration(tmp_path: Path) -> None:
    scripted(tmp_path, Scaled(), ["x", "offset"], ["one", "two"])
    runtime, _ = opened(tmp_path)
    with pytest.raises(TonnageError, match="makes 1 tensors; its configuration names 2 outputs") as caught:
        runtime.run({"x": rows(1), "offset": rows(1)}, ())
    assert not isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("names", "reason"), [(["x"], "needs offset"), (["a", "b", "c"], "takes x, offset"), (["I__0", "I__7"], "takes x")]
)
def test_inputs_that_do_not_suit_a_torchscript_are_told(tmp_path: Path, names: list[str], reason: str) -> None:
    scripted(tmp_path, Scaled(), names, ["y"])
    with pytest.raises(InvalidFile, match=rf"model\.pt {reason}"):
        opened(tmp_path)


def test_torchscript_without_a_configuration_is_refused(tmp_path: Path) -> None:
    save_scripted(version(tmp_path, "m") / "model.pt", Scaled())
    with pytest.raises(InvalidFile, match=r"model\.pt does not tell the shapes") as caught:
        opened(tmp_path)
    assert "config.pbtxt" in caught.value.hint


# -- what is wrong --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.onnx", "model.pt2", "model.pt"])
@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04" + bytes(100), bytes(range(256)) * 20])
def test_malformed_files_are_named_with_a_reason(tmp_path: Path, name: str, content: bytes) -> None:
    (version(tmp_path, "m") / name).write_bytes(content)
    with pytest.raises(InvalidFile, match=name.replace(".", r"\.")) as caught:
        opened(tmp_path)
    assert "\n" not in caught.value.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    file = version(tmp_path, "m") / "model.onnx"
    save_sum(file)
    file.chmod(0)
    with pytest.raises(InvalidFile, match=r"model\.onnx cannot be read: Permission denied"):
        opened(tmp_path)


@pytest.mark.parametrize("name", ["model.onnx", "model.pt2", "model.pt"])
def test_files_that_end_too_early_are_named_with_a_reason(tmp_path: Path, name: str) -> None:
    folder = version(tmp_path, "m")
    if name == "model.onnx":
        save_sum(folder / name)
    elif name == "model.pt2":
        save_exported(folder / name, Scaled(), (torch.zeros(2, 3), torch.zeros(2, 3)))
    else:
        save_scripted(folder / name, Scaled())
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidFile, match=name.replace(".", r"\.")):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ('input { name: "z" data_type: TYPE_FP32 dims: [-1, 3] }', "has no input 'z'; its file has a, b"),
        ('input { name: "a" data_type: TYPE_INT8 dims: [-1, 3] }', "is INT8 in the configuration and FP32 in the file"),
        ('input { name: "a" data_type: TYPE_FP32 dims: [-1, 4] }', r"has the shape \[-1, 4\] in the configuration"),
        ('input { name: "a" data_type: TYPE_FP32 dims: [-1, 3] }', "lacks the input 'b'"),
        ('output { name: "q" data_type: TYPE_FP32 dims: [-1, 3] }', "has no output 'q'"),
    ],
)
def test_a_configuration_that_contradicts_its_file_is_refused(tmp_path: Path, tensors: str, reason: str) -> None:
    save_sum(version(tmp_path, "m", configuration=tensors) / "model.onnx")
    with pytest.raises(InvalidFile, match=reason):
        opened(tmp_path)


def test_batches_need_an_open_first_axis(tmp_path: Path) -> None:
    save_sum(version(tmp_path, "m", configuration="max_batch_size: 4") / "model.onnx", 2)
    with pytest.raises(InvalidFile, match=r"'a' has the shape \[2, 3\], which holds no batch"):
        opened(tmp_path)
