"""The catalogue is complete, consistent with itself, and easy to search."""

import pickle
import subprocess
import sys
import time

import pytest

from tonnage.errors import NotFound
from tonnage.hardware import Gpu, all_gpus, find_gpu, match_gpu, pcie_bytes_second
from tonnage.hardware.catalogue import normalise
from tonnage.units import GIB, MIB

# fp32 lanes in an SM (CUDA programming guide) or, for CDNA, half the fp32 matrix operations of a CU in one clock.
FP32_LANES = {
    "3.7": 192,
    "5.2": 128,
    "6.0": 64,
    "6.1": 128,
    "7.0": 64,
    "7.5": 64,
    "8.0": 64,
    "8.6": 128,
    "8.9": 128,
    "9.0": 128,
    "10.0": 128,
    "12.0": 128,
    "gfx908": 128,
    "gfx90a": 128,
    "gfx942": 128,
}
every_gpu = pytest.mark.parametrize("gpu", all_gpus(), ids=lambda gpu: gpu.name)


def test_the_catalogue_has_at_least_55_gpus() -> None:
    assert len(all_gpus()) >= 55


def test_no_two_gpus_share_a_name_or_an_alias() -> None:
    spellings = [spelling for gpu in all_gpus() for spelling in {normalise(name) for name in (gpu.name, *gpu.aliases)}]
    assert len(spellings) == len(set(spellings))


@every_gpu
def test_fp32_rate_follows_from_units_and_clock(gpu: Gpu) -> None:
    expected = gpu.sms * FP32_LANES[gpu.compute_capability] * 2 * gpu.boost_clock_mhz / 1e6
    assert gpu.tflops["fp32"] == pytest.approx(expected, rel=0.03)


@every_gpu
def test_narrower_types_are_not_slower_on_matrix_units(gpu: Gpu) -> None:
    tensor = [gpu.tflops[dtype] for dtype in ("tf32", "fp16", "fp8") if gpu.tflops[dtype]]
    if gpu.tflops["tf32"]:
        assert tensor == sorted(tensor, key=lambda rate: rate or 0)


@every_gpu
def test_tensor_rates_double_from_tf32_to_fp16_to_fp8(gpu: Gpu) -> None:
    tf32, fp16, fp8 = (gpu.tflops[dtype] for dtype in ("tf32", "fp16", "fp8"))
    if tf32 and fp16:
        assert fp16 == pytest.approx(2 * tf32, rel=0.03)
    if fp16 and fp8:
        assert fp8 == pytest.approx(2 * fp16, rel=0.03)


@every_gpu
def test_usable_memory_is_a_little_less_than_the_total(gpu: Gpu) -> None:
    assert 0.95 * gpu.memory_bytes < gpu.usable_bytes <= gpu.memory_bytes
    assert 50 * MIB < gpu.context_bytes < 0.08 * gpu.usable_bytes


@every_gpu
def test_figures_are_in_a_plausible_range(gpu: Gpu) -> None:
    assert 100e9 < gpu.bandwidth_bytes_second < 10e12
    assert gpu.base_clock_mhz < gpu.boost_clock_mhz < 3000
    assert 1 * MIB < gpu.l2_bytes <= 128 * MIB
    assert 50 <= gpu.tdp_watts <= 1000


@every_gpu
def test_every_figure_has_a_source(gpu: Gpu) -> None:
    assert set(gpu.sources) == {
        *("sms", "clocks", "compute", "total", "usable", "bandwidth", "cache", "power", "links", "context")
    }
    assert all(gpu.sources.values())


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("h200", "H200"),
        ("NVIDIA H200", "H200"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2 16GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"),
        ("rtx-4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 3080", "RTX 3080"),
        ("a10g", "A10G"),
        ("mi300x", "MI300X"),
    ],
)
def test_a_gpu_is_found_by_any_usual_spelling(spelling: str, name: str) -> None:
    assert find_gpu(spelling).name == name


def test_a_misspelt_gpu_gets_the_nearest_name_as_a_hint() -> None:
    with pytest.raises(NotFound, match="unknown GPU 'H20O'") as caught:
        find_gpu("H20O")
    assert caught.value.hint == f"did you mean H200? `tonnage gpus` lists all {len(all_gpus())}"


def test_a_family_name_gets_its_members_as_a_hint() -> None:
    with pytest.raises(NotFound) as caught:
        find_gpu("A100")
    assert "A100 PCIe 40GB, A100 SXM 40GB, A100 PCIe 80GB, A100 SXM 80GB" in caught.value.hint


@pytest.mark.parametrize("name", ["", "   ", "zzzzzz", "\N{SNOWMAN}"])
def test_a_hopeless_name_is_refused_too(name: str) -> None:
    with pytest.raises(NotFound):
        find_gpu(name)


def test_memory_tells_two_gpus_of_one_driver_name_apart() -> None:
    found = [match_gpu("NVIDIA GeForce RTX 3080", size * GIB) for size in (10, 12)]
    assert [gpu and gpu.name for gpu in found] == ["RTX 3080", "RTX 3080 12GB"]


def test_a_driver_name_with_other_memory_is_not_matched() -> None:
    assert match_gpu("NVIDIA GeForce RTX 4060 Ti", 8 * GIB) is None


def test_libraries_fall_back_to_fp32_where_fp16_is_slow() -> None:
    gpu = find_gpu("P40")
    assert gpu.peak_tflops("fp16") == gpu.tflops["fp32"]
    assert find_gpu("H200").peak_tflops("bf16") == 989.4


def test_pcie_bandwidth_is_that_of_one_direction() -> None:
    assert pcie_bytes_second(3, 16) == pytest.approx(15.75e9, rel=0.001)
    assert find_gpu("H200").pcie_bytes_second == pytest.approx(63.0e9, rel=0.001)


def test_a_gpu_can_be_hashed_and_sent_to_another_process() -> None:
    gpu = find_gpu("H200")
    assert pickle.loads(pickle.dumps(gpu)) == gpu
    assert {gpu: 1}[gpu] == 1


def test_loading_the_catalogue_takes_milliseconds() -> None:
    find_gpu("H200")  # imports are not counted
    all_gpus.cache_clear()
    started = time.process_time()
    all_gpus()
    assert time.process_time() - started < 0.5  # 25 ms on an idle machine; the margin is for busy ones


def test_importing_hardware_loads_neither_torch_nor_pydantic() -> None:
    code = "import sys, tonnage.hardware; print(sorted({'torch', 'pydantic', 'yaml', 'pynvml'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
