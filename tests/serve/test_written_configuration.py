"""A configuration that is written reads as the same one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.serve.configuration import (
    Batching,
    InstanceGroup,
    ModelConfiguration,
    QueuePolicy,
    TensorSpec,
    VersionPolicy,
)
from tonnage.serve.configuration_file import read_configuration
from tonnage.serve.configuration_text import configuration_text, write_configuration
from tonnage.serve.repository import read_folder

FULL = ModelConfiguration(
    name="full",
    backend="caffe",
    max_batch_size=8,
    inputs=(
        TensorSpec(name="a \"b\" \\ é", datatype="FP32", dims=(3, -1, -1)),
        TensorSpec(name="n", datatype="INT64", dims=()),
    ),
    outputs=(TensorSpec(name="y", datatype="BYTES", dims=(5,), labels=("cat", "dog"), label_file="labels.txt"),),
    groups=(InstanceGroup(count=3, kind="KIND_GPU", gpus=(0, 2), name="g"),),
    batching=Batching(preferred_sizes=(4, 8), most_delay_seconds=0.0015, preserve_ordering=True),
    queue=QueuePolicy(most_requests=9, timeout_seconds=0.5, timeout_action="DELAY", allow_timeout_override=False),
    priority_levels=2,
    default_priority=2,
    level_policies={1: QueuePolicy(most_requests=5, allow_timeout_override=False)},
    versions=VersionPolicy(specific=(1, 3)),
    file_name="other.prototxt",
    parameters={"intra_op_thread_count": "2"},
)  # fmt: skip
OTHERS = [
    ModelConfiguration(name="nothing"),
    ModelConfiguration(name="batches", max_batch_size=4, batching=Batching()),
    ModelConfiguration(name="rows", max_batch_size=32),
    ModelConfiguration(name="all", versions=VersionPolicy(serves_all=True)),
    ModelConfiguration(name="latest", versions=VersionPolicy(latest=3)),
]


def folder_of(configuration: ModelConfiguration, parent: Path) -> Path:
    folder = parent / configuration.name
    folder.mkdir()
    (folder / "labels.txt").write_text("cat\ndog\n")
    return folder


@pytest.mark.parametrize("configuration", [FULL, *OTHERS], ids=lambda each: each.name)
def test_what_is_written_is_what_is_read(configuration: ModelConfiguration, tmp_path: Path) -> None:
    folder = folder_of(configuration, tmp_path)
    write_configuration(configuration, folder)
    assert read_configuration(read_folder(folder)) == configuration


def test_defaults_are_not_written() -> None:
    text = configuration_text(ModelConfiguration(name="small", max_batch_size=4, batching=Batching()))
    assert "optimization" not in text
    assert "version_policy" not in text
    assert "dynamic_batching {" in text


def test_the_configuration_before_is_kept(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").write_text("max_batch_size: 2\n")
    write_configuration(ModelConfiguration(name="m", max_batch_size=4), tmp_path)
    write_configuration(ModelConfiguration(name="m", max_batch_size=8), tmp_path)
    assert (tmp_path / "config.pbtxt.before").read_text() == "max_batch_size: 2\n"
    assert "max_batch_size: 4" in (tmp_path / "config.pbtxt.before-2").read_text()
    assert "max_batch_size: 8" in (tmp_path / "config.pbtxt").read_text()


def test_a_yaml_file_gives_way_and_is_kept(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("max_batch_size: 2\n")
    write_configuration(ModelConfiguration(name="m"), tmp_path)
    assert read_folder(tmp_path).configuration == tmp_path / "config.pbtxt"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["config.pbtxt", "config.yaml.before"]
