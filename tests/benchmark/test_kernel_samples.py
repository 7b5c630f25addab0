"""Rows of the database as samples."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tonnage.benchmark.kernel_samples import FLUSHED_BYTES, Sample, Source, database_samples, samples_of
from tonnage.program.trace import Operator, TensorSpec
from tonnage.store.rows import Environment, KernelRow, Measurement, Spread

SQUARE = TensorSpec((64, 64), "float32")
PRODUCT = Operator("aten::mm", (SQUARE, SQUARE), (SQUARE,))
RELU = Operator("aten::relu", (SQUARE,), (SQUARE,))
SOURCE = Source(key="k", family="mlp", gpu="H200", footprint=1e6)


def row(operator: Operator, position: int, seconds: float, *, kernel: str = "kernel", calls: int = 1) -> KernelRow:
    return KernelRow(
        operator=operator, phase="forward", position=position, kernel=kernel, calls=calls, seconds=Spread(seconds, 0.0)
    )


def samples(*rows: KernelRow) -> list[Sample]:
    return list(samples_of(SOURCE, rows))


def test_the_kernels_of_an_operator_add_up() -> None:
    (sample,) = samples(row(PRODUCT, 0, 1e-6), row(PRODUCT, 1, 2e-6))

    assert (sample.work.kind, sample.seconds) == ("product", pytest.approx(3e-6))


def test_calls_that_launched_other_kernels_count_by_their_number() -> None:
    (sample,) = samples(row(PRODUCT, 0, 1e-6, calls=3), row(PRODUCT, 0, 5e-6, calls=1))

    assert sample.seconds == pytest.approx(2e-6)


def test_copies_from_the_host_are_left_out() -> None:
    copy = Operator("aten::copy_", (SQUARE, SQUARE), (SQUARE,))

    assert samples(row(copy, 0, 1e-6, kernel="Memcpy HtoD (Pinned -> Device)")) == []


def test_the_bias_of_a_convolution_is_not_its_product() -> None:
    image, weight = TensorSpec((2, 4, 8, 8), "float32"), TensorSpec((4, 4, 3, 3), "float32")
    operator = Operator("aten::convolution", (image, weight, TensorSpec((4,), "float32")), (image,), {"groups": 1})
    (sample,) = samples(row(operator, 0, 5e-6, kernel="fprop"), row(operator, 1, 1e-6, kernel="elementwise_kernel"))

    assert (sample.work.kind, sample.seconds) == ("convolution", pytest.approx(5e-6))


def measurement(key: str, family: str, allocated: int | None) -> Measurement:
    return Measurement(
        key=key, campaign="c", family=family, structure={"tf32": True}, batch=1, input_shape=(1,),
        measured_at=datetime(2026, 1, 1, tzinfo=UTC), allocated_bytes=allocated,
    )  # fmt: skip


def test_single_layers_were_measured_with_empty_caches() -> None:
    layer, network = (Source.of("H200", measurement("a", name, 5)) for name in ("layer:mm", "mlp"))

    assert (layer.footprint, network.footprint, layer.rules.matmul_tf32) == (FLUSHED_BYTES, 5.0, True)


def test_samples_come_from_a_database(tmp_path: Path) -> None:
    database = pytest.importorskip("tonnage.store.database")
    environment = Environment(device="cuda", gpu="H200")
    with database.open_database(tmp_path / "bench.db") as opened:
        for key in ("a", "b"):
            opened.add(environment, measurement(key, "mlp", 7), [row(PRODUCT, 0, 1e-6), row(RELU, 0, 2e-6)])
        found = list(database_samples(opened))

    assert [(s.key, s.work.kind, s.gpu) for s in found] == [
        ("a", "product", "H200"), ("a", "pointwise", "H200"), ("b", "product", "H200"), ("b", "pointwise", "H200"),
    ]  # fmt: skip
    assert found[0].work.arithmetic == "tf32"
