"""This machine describes itself, with the GPUs that its driver knows."""

from __future__ import annotations

from pathlib import Path

import yaml

from tonnage.hardware import read_cluster
from tonnage.hardware.fake_nvml import FakeDevice, FakeNvml
from tonnage.stages.machine import look, paces
from tonnage.stages.this_machine import this_machine


def test_gpus_tell_load_and_free_memory() -> None:
    gpu = look(FakeNvml([FakeDevice(total_bytes=1000, used_bytes=300, reserved_bytes=100, utilisation_percent=25)]))
    assert gpu["gpus"] == [
        {"name": "NVIDIA H200", "is_known": False, "memory_bytes": 1000, "available_bytes": 600, "load": 0.25}
    ]  # fmt: skip


def test_a_gpu_that_does_not_tell_its_load_has_none() -> None:
    nvml = FakeNvml([FakeDevice(unsupported=frozenset({"utilisation_percent"}))])
    assert look(nvml)["gpus"][0]["load"] is None


def test_without_a_driver_there_are_no_gpus() -> None:
    assert look(FakeNvml(has_driver=False))["gpus"] == []


def test_every_pace_is_a_rate() -> None:
    found = paces(2)
    assert len(found) == 2
    assert all(each.flops_second > 1e6 and each.copy_bytes_second > 1e6 for each in found)


def test_this_machine_is_a_cluster_file(tmp_path: Path) -> None:
    told: list[str] = []
    devices = [FakeDevice(), FakeDevice(), FakeDevice(name="Voodoo 2")]
    content = this_machine(told.append, FakeNvml(devices), name="my host.example.org")
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(content))
    node = read_cluster(path).node("my-host")
    assert [gpu.name for gpu in node.gpus] == ["H200", "H200"]
    assert told == ["the catalogue has no Voodoo 2; left out"]
