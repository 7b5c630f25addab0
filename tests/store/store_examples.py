"""Rows for tests of the benchmark database, and strategies that make all kinds of them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from tonnage.program.trace import Operator, TensorSpec
from tonnage.store.rows import Environment, HostRow, KernelRow, Measurement, Spread, Status

H200 = Environment(device="cuda", gpu="H200", gpu_memory_bytes=150_754_820_096, power_limit_watts=700.0, torch="2.13.0")
T4 = Environment(device="cuda", gpu="T4", driver="580.95.05")
CPU = Environment(device="cpu", gpu="", cpu="EPYC", cpu_cores=64)

MATMUL = Operator(
    "aten::mm",
    (TensorSpec((64, 128), "float32"), TensorSpec((128, 32), "float32", "strided", (1, 128)), None),
    (TensorSpec((64, 32), "float32"),),
    {"alpha": 1.0, "count": 1, "flag": True, "mask": float("-inf"), "sizes": (1, (2, 3)), "name": None},
)
START = datetime(2026, 11, 15, 12, 30, 15, 123456, tzinfo=UTC)


def measurement(key: str = "a", **changes: Any) -> Measurement:
    values: dict[str, Any] = {
        "key": key, "campaign": "first", "family": "mlp", "structure": {"widths": (128, 64), "dropout": 0.1},
        "batch": 32, "input_shape": (3, 224, 224), "measured_at": START, "steps": 20, "repetitions": 3,
        "step_seconds": Spread(0.0123, 0.0001), "allocated_bytes": 2**33, "utilisation": 0.97, "power_watts": 612.5,
    }  # fmt: skip
    return Measurement(**(values | changes))


def kernel(operator: Operator = MATMUL, **changes: Any) -> KernelRow:
    values: dict[str, Any] = {
        "phase": "forward", "position": 0, "kernel": "sm90_xmma_gemm<float, 128>", "calls": 20,
        "seconds": Spread(1.5e-5, 2e-7), "grid": (8, 4, 1), "block": (128, 1, 1),
    }  # fmt: skip
    return KernelRow(operator=operator, **(values | changes))


def host(operator: Operator = MATMUL, **changes: Any) -> HostRow:
    values: dict[str, Any] = {"phase": "forward", "calls": 20, "seconds": Spread(6e-6, 1e-7)}
    return HostRow(operator=operator, **(values | changes))


# -- strategies -----------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
wholes = st.integers(0, 2**63 - 1)
reals = st.floats(0, allow_nan=False, allow_infinity=False)
spreads = st.builds(Spread, reals, reals)
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda time: time.replace(tzinfo=UTC))
attributes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)
mappings = st.dictionaries(texts, attributes, max_size=3)
shapes = st.lists(st.integers(0, 2**40), max_size=4).map(tuple)
tensors = st.builds(TensorSpec, shapes, texts, texts, shapes)
operators = st.builds(
    Operator,
    texts,
    st.lists(st.none() | tensors, max_size=3).map(tuple),
    st.lists(tensors, max_size=2).map(tuple),
    mappings,
)
kernels = st.builds(
    KernelRow, operator=operators, phase=texts, position=wholes, kernel=texts, calls=wholes, seconds=spreads,
    grid=shapes, block=shapes,
)  # fmt: skip
hosts = st.builds(HostRow, operator=operators, phase=texts, calls=wholes, seconds=spreads)
environments = st.builds(
    Environment, device=texts, gpu=texts, gpu_memory_bytes=st.none() | wholes, power_limit_watts=st.none() | reals,
    driver=texts, cuda=texts, cudnn=texts, torch=texts, python=texts, platform=texts, cpu=texts,
    cpu_cores=st.none() | wholes, tonnage=texts,
)  # fmt: skip
_SPREADS = (
    "step_seconds forward_seconds backward_seconds optimizer_seconds h2d_seconds d2h_seconds host_seconds".split()
)
_BYTES = "h2d_bytes d2h_bytes allocated_bytes reserved_bytes device_bytes parameter_count storage_bytes".split()
_REALS = "first_step_seconds power_watts energy_joules_step sm_clock_mhz".split()
measurements = st.builds(
    Measurement, key=texts, campaign=texts, family=texts, structure=mappings, batch=wholes, input_shape=shapes,
    precision=texts, settings=mappings, mode=texts, status=st.sampled_from(Status), message=texts, measured_at=moments,
    steps=wholes, repetitions=wholes, utilisation=st.none() | st.floats(0, 1),
    temperature_celsius=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    **{name: st.none() | spreads for name in _SPREADS},
    **{name: st.none() | wholes for name in _BYTES},
    **{name: st.none() | reals for name in _REALS},
)  # fmt: skip


def later(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)
