"""Configurations: read from files as people write them, complaints with file, line and field, written and read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tonnage.errors import InvalidFile
from tonnage.serve.configuration import (
    Batching,
    InstanceGroup,
    ModelConfiguration,
    QueuePolicy,
    TensorSpec,
    VersionPolicy,
)
from tonnage.serve.configuration_file import configuration_of, configuration_of_json, read_configuration
from tonnage.serve.configuration_json import configuration_json
from tonnage.serve.configuration_text import configuration_text, write_configuration
from tonnage.serve.datatypes import DATATYPES
from tonnage.serve.pbtxt import Word, parse_pbtxt, pbtxt_lines
from tonnage.serve.repository import read_folder

COMMON = """
# A file as people write them.
name: "m"; platform: "onnxruntime_onnx"
max_batch_size : 8
input [
  {
    name: "INPUT0"   # the picture
    data_type: TYPE_FP32
    format: FORMAT_NCHW
    dims: [ -1, 3 ]
  },
  { name: 'text', data_type: TYPE_STRING, dims: 1, reshape { shape: [ ] } }
]
output: [ < name: "OUT" data_type: TYPE_BF16 dims: 10 dims: 0x14 > ]
instance_group [ { count: 2 kind: KIND_CPU host_policy: "near" }, { count: 1 } ]
version_policy: { specific { versions: [1, 3] } }
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 100
  priority_levels: 2 default_priority_level: 2
  default_queue_policy { timeout_action: DELAY, max_queue_size: 7 }
  priority_queue_policy { key: 1 value: { default_timeout_microseconds: 2500000 allow_timeout_override: true } }
}
parameters: { key: "INFERENCE_MODE" value: { string_value: "true" } }
parameters { key: "a" "b" value { string_value: "c\\"\\n" } }
optimization { execution_accelerators { gpu_execution_accelerator : [ { name : "tensorrt" } ] } priority: PRIORITY_MAX }
model_warmup [ { name: "w" batch_size: 1 inputs { key: "INPUT0" value: { zero_data: true } } } ]
"""


def folder_with(path: Path, **files: str) -> Path:
    folder = path / "m"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def read(path: Path, text: str) -> ModelConfiguration:
    return read_configuration(read_folder(folder_with(path, config_pbtxt=text)))


def test_a_file_as_people_write_them_is_understood(tmp_path: Path) -> None:
    found = read(tmp_path, COMMON)
    assert found == ModelConfiguration(
        name="m",
        backend="onnxruntime",
        max_batch_size=8,
        inputs=(
            TensorSpec(name="INPUT0", datatype="FP32", dims=(-1, 3)),
            TensorSpec(name="text", datatype="BYTES", dims=(1,), reshape=()),
        ),
        outputs=(TensorSpec(name="OUT", datatype="BF16", dims=(10, 20)),),
        groups=(InstanceGroup(count=2, kind="KIND_CPU"), InstanceGroup(count=1)),
        versions=VersionPolicy(specific=(1, 3)),
        batching=Batching(preferred_sizes=(4, 8), most_delay_seconds=1e-4),
        queue=QueuePolicy(most_requests=7, timeout_action="DELAY", allow_timeout_override=False),
        priority_levels=2,
        default_priority=2,
        level_policies={1: QueuePolicy(timeout_seconds=2.5)},
        parameters={"INFERENCE_MODE": "true", "ab": 'c"\n'},
    )


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    document = configuration_json(read(tmp_path, COMMON))
    del document["default_model_filename"]
    document["instance_group"] = [{"count": 2, "kind": "KIND_CPU"}, {"count": 1}]
    expected = read(tmp_path, COMMON)
    assert configuration_of_json("m", json.dumps(document), tmp_path) == expected
    (tmp_path / "m" / "config.pbtxt").unlink()
    folder = folder_with(tmp_path, config_yaml=json.dumps(document))  # JSON is YAML
    assert read_configuration(read_folder(folder)) == expected


def test_numbers_in_json_may_be_texts_as_protobuf_writes_them() -> None:
    text = '{"max_batch_size": 2, "input": [{"name": "x", "data_type": "TYPE_INT8", "dims": ["3", "-1"]}]}'
    assert configuration_of_json("m", text, Path()).inputs[0].dims == (3, -1)


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "") == ModelConfiguration(name="m")
    assert read(tmp_path, "\ufeff# only a comment\r\n") == ModelConfiguration(name="m")


def test_the_largest_numbers_are_read(tmp_path: Path) -> None:
    most = 2**64 - 1
    policy = f"key: {2**32} value {{ default_timeout_microseconds: {most} }}"
    found = read(tmp_path, f"dynamic_batching {{ priority_levels: {most} priority_queue_policy [ {{ {policy} }} ] }}")
    assert found.priority_levels == most
    assert found.level_policies[2**32].timeout_seconds > 1e9
    assert read(tmp_path, configuration_text(found)) == found


WRONG = [
    ('name: "m"\nmax_batch_size: "many"', "config.pbtxt:2: max_batch_size: must be a whole number, not 'many'"),
    ("max_batch_size: true", "config.pbtxt:1: max_batch_size: must be a whole number, not true"),
    ("max_batch_size: -1", "config.pbtxt:1: max_batch_size: must be at least 0, not -1"),
    ("max_batch_size: 1.5", "config.pbtxt:1: max_batch_size: must be a whole number, not 1.5"),
    ("\n\nmax_batchsize: 1", "config.pbtxt:3: max_batchsize: there is no such field here; did you mean max_batch_size?"),
    ('name: "other"', "config.pbtxt:1: name: is 'other', but the folder is called 'm'"),
    ('input [ {\nname: "x"\ndata_type: TYPE_FP99 } ]', "config.pbtxt:3: input[0].data_type: 'TYPE_FP99' is no datatype"),
    (
        'input [ { name: "x" data_type: TYPE_FP32 },\n{ name: "y" data_type: TYPE_FP32\n dims: [ 1,\n -2 ] } ]',
        "config.pbtxt:4: input[1].dims[1]: must be at least -1, not -2",
    ),
    ('input { data_type: TYPE_FP32 dims: 1 }', "config.pbtxt:1: input[0].name: is missing"),
    ('input { name: "x" data_type: TYPE_FP32 } input { name: "x" data_type: TYPE_FP32 }', "'x' is named twice"),
    ("instance_group {\ncount: 0 }", "config.pbtxt:2: instance_group[0].count: must be at least 1, not 0"),
    ("instance_group { kind: KIND_TPU }", "config.pbtxt:1: instance_group[0].kind: must be 'KIND_AUTO'"),
    ("version_policy { all { } latest { } }", "config.pbtxt:1: version_policy: must be one of latest, all and specific"),
    ("version_policy { specific { } }", "version_policy.specific.versions: is missing"),
    ('platform: "tensorrt_plan"', "config.pbtxt:1: platform: 'tensorrt_plan' does not run here"),
    ("sequence_batching { }", "config.pbtxt:1: sequence_batching: is not served here"),
    ("max_batch_size: 4\ndynamic_batching {\npreferred_batch_size: [2, 8] }", ":3: dynamic_batching.preferred_batch_size"),
    ("dynamic_batching { default_priority_level: 1 }", "dynamic_batching.default_priority_level: is 1, more than"),
    ("dynamic_batching { priority_queue_policy { key: 3 value { } } }", "is for level 3, but priority_levels is 0"),
    ('dynamic_batching { priority_queue_policy { key: "x" } }', "must be a whole number, not 'x'"),
    ('parameters { key: "x" } parameters { key: "x" }', "parameters: the key 'x' is given twice"),
    ("parameters: [ 1, 2 ]", "config.pbtxt:1: parameters: must be a mapping, or entries with key and value"),
    ('output {\nname: "y" data_type: TYPE_FP32\nlabel_filename: "../m/x" }', ":3: output[0].label_filename: "),
    (
        'input { name: "x" data_type: TYPE_FP32 dims: [6]\nreshape { shape: [2, 4] } }',
        "config.pbtxt:2: input[0].reshape: [2, 4] does not hold as many elements as dims, which are [6]",
    ),
    ("max_batch_size 4", "config.pbtxt, line 1: no colon after max_batch_size"),
    ("input [ 3 ]", "config.pbtxt, line 1: no colon after input"),
    ("dims: [ 1", "config.pbtxt, line 1: the end of the file"),
    ("input {\n name: \"x\"", "config.pbtxt, line 1: input is never closed"),
    ("name: \"m", "config.pbtxt, line 1: "),
    ("a " * 5, "config.pbtxt, line 1: no colon after a"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_complaints_name_file_line_and_field(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        read(tmp_path, text)
    assert message in caught.value.message
    assert "config.pbtxt" in caught.value.message
    assert "\n" not in caught.value.message


def test_bytes_that_are_no_text_are_told_with_their_line(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    (folder / "config.pbtxt").write_bytes(b'name: "m"\n\n\xff')
    with pytest.raises(InvalidFile, match=r"config\.pbtxt:3: not UTF-8 text \(byte 0xff\)"):
        read_configuration(read_folder(folder))


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="more than 1,048,576 bytes"):
        read(tmp_path, "#" * (1 << 21))


def test_complaints_about_yaml_have_lines(tmp_path: Path) -> None:
    folder = folder_with(
        tmp_path, config_yaml="max_batch_size: 4\ninput:\n- name: x\n  data_type: FP32\n  dims: [1, x]\n"
    )
    with pytest.raises(InvalidFile, match=r"config\.yaml:5: input\[0\]\.dims\[1\]: must be a whole number, not 'x'"):
        read_configuration(read_folder(folder))


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "{", '{"max_batch_size": -1}', '{"name": "\\ud800"}', '{"parameters": {"a": "\\ud800"}}', "[" * 9999],
)
def test_a_configuration_of_a_client_that_is_wrong_is_refused(text: str) -> None:
    with pytest.raises(InvalidFile, match="the configuration"):
        configuration_of_json("m", text, Path())


# -- writing --------------------------------------------------------------------------------------------------------------


def test_tuning_loses_nothing_of_a_file(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, config_pbtxt=COMMON)
    before = read_configuration(read_folder(folder))
    write_configuration(before, folder)
    assert read_configuration(read_folder(folder)) == before
    text = (folder / "config.pbtxt").read_text()
    for kept in (
        "format: FORMAT_NCHW",
        'host_policy: "near"',
        "priority: PRIORITY_MAX",
        'name: "tensorrt"',
        "zero_data",
    ):
        assert kept in text
    assert (folder / "config.pbtxt.before").read_text() == COMMON


def test_tuning_loses_nothing_of_a_yaml_file(tmp_path: Path) -> None:
    text = "max_batch_size: 4\nmetric_tags: {team: seven}\noptimization: {priority: PRIORITY_MIN}\nparameters: {a: 1}\n"
    folder = folder_with(tmp_path, config_yaml=text)
    before = read_configuration(read_folder(folder))
    assert write_configuration(before, folder) == folder / "config.pbtxt"
    assert read_configuration(read_folder(folder)) == before
    written = (folder / "config.pbtxt").read_text()
    assert 'metric_tags {\n  key: "team"\n  value: "seven"\n}' in written
    assert "priority: PRIORITY_MIN" in written
    assert sorted(each.name for each in folder.iterdir()) == ["config.pbtxt", "config.yaml.before"]


def test_labels_come_from_the_same_file_again(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, labels_txt="cat\ndog\n")
    (folder / "config.pbtxt").write_text(
        'output { name: "y" data_type: TYPE_FP32 dims: 2 label_filename: "labels.txt" }'
    )
    before = read_configuration(read_folder(folder))
    assert before.outputs[0].labels == ("cat", "dog")
    write_configuration(before, folder)
    assert read_configuration(read_folder(folder)) == before


names = some.text(some.characters(codec="utf-8"), min_size=1, max_size=12)
sizes = some.lists(some.integers(-1, 2**40), max_size=4).map(tuple)
tensors = some.builds(
    TensorSpec, name=names, datatype=some.sampled_from(DATATYPES), dims=sizes, reshape=some.none()
) | sizes.flatmap(
    lambda dims: some.builds(
        TensorSpec, name=names, datatype=some.just("FP32"), dims=some.just(dims), reshape=some.just((1, *dims[::-1]))
    )
)
policies = some.builds(
    QueuePolicy,
    most_requests=some.integers(0, 2**31 - 1),
    timeout_seconds=some.integers(0, 10**9).map(lambda count: count / 1e6),
    timeout_action=some.sampled_from(["REJECT", "DELAY"]),
    allow_timeout_override=some.booleans(),
)
groups = some.builds(
    InstanceGroup,
    count=some.integers(1, 256),
    kind=some.sampled_from(["KIND_AUTO", "KIND_CPU", "KIND_GPU"]),
    gpus=some.lists(some.integers(0, 15), max_size=3).map(tuple),
    name=some.just("") | names,
)
version_policies = (
    some.builds(VersionPolicy, latest=some.integers(1, 99))
    | some.just(VersionPolicy(serves_all=True))
    | some.builds(VersionPolicy, specific=some.lists(some.integers(1, 2**60), min_size=1, max_size=3).map(tuple))
)


@some.composite
def configurations(draw: Any) -> ModelConfiguration:
    most = draw(some.integers(0, 64))
    levels = draw(some.integers(0, 3))
    batching = draw(
        some.none()
        | some.builds(
            Batching,
            preferred_sizes=some.lists(some.integers(1, max(most, 1)), max_size=3).map(tuple),
            most_delay_seconds=some.integers(0, 10**9).map(lambda count: count / 1e6),
            preserve_ordering=some.booleans(),
        )
    )
    queue = (
        {}
        if batching is None
        else {
            "queue": draw(policies),
            "priority_levels": levels,
            "default_priority": draw(some.integers(0, levels)),
            "level_policies": {level: draw(policies) for level in range(1, levels + 1)},
        }
    )
    unique = some.lists(tensors, max_size=3, unique_by=lambda spec: spec.name).map(tuple)
    return ModelConfiguration(
        name="m",
        backend=draw(some.sampled_from(["", "onnxruntime", "pytorch", "caffe"])),
        max_batch_size=most,
        inputs=draw(unique),
        outputs=draw(unique),
        groups=tuple(draw(some.lists(groups, min_size=1, max_size=3))),
        batching=batching,
        versions=draw(version_policies),
        file_name=draw(some.just("") | names),
        parameters=draw(some.dictionaries(names, some.text(some.characters(codec="utf-8"), max_size=20), max_size=3)),
        **queue,
    )


@settings(max_examples=300, deadline=None)
@given(configurations())
def test_what_is_written_is_what_is_read(configuration: ModelConfiguration) -> None:
    source = parse_pbtxt(configuration_text(configuration).encode(), "config.pbtxt")
    assert configuration_of("m", source, source.value, Path()) == configuration


words = some.from_regex(r"[A-Z][A-Z0-9_]{1,8}", fullmatch=True).map(Word)
scalars = some.booleans() | some.integers(-(2**63), 2**63) | some.text(some.characters(codec="utf-8")) | words
values = some.recursive(
    scalars | some.lists(scalars, min_size=2, max_size=4),
    lambda inner: some.dictionaries(some.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(some.dictionaries(some.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True), values, max_size=5))
def test_any_document_is_read_as_it_was_written(document: dict[str, Any]) -> None:
    assert parse_pbtxt("\n".join(pbtxt_lines(document)).encode(), "file").value == document


@settings(max_examples=300, deadline=None)
@given(some.text(alphabet=" \n\"'{}[]<>:;,#\\-+.0x9eEfabmtinputdms_TYPE", max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    refused = ""
    try:
        source = parse_pbtxt(text.encode(), "config.pbtxt")
        configuration_of("m", source, source.value, Path())
    except InvalidFile as error:
        refused = error.message
    assert not refused or refused.startswith("config.pbtxt")
