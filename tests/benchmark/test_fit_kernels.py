"""Fits on a synthetic twin of measured rows: a GPU that follows the formulas, with constants of its own and noise."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from tonnage.benchmark.kernel_samples import Sample
from tonnage.errors import MissingDependency, TonnageError
from tonnage.estimate.kernels.constants import Constants, KindConstants
from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.kernels.roofline import seconds
from tonnage.estimate.kernels.table import WorkTable
from tonnage.estimate.kernels.work import Work
from tonnage.hardware import find_gpu

needs_scipy = pytest.mark.skipif(
    find_spec("scipy") is None, reason="scipy is not installed: pip install 'tonnage[fit]'"
)
needs_lightgbm = pytest.mark.skipif(
    find_spec("lightgbm") is None, reason="lightgbm is not installed: pip install 'tonnage[fit]'"
)
TRUTH = Constants(
    kinds={
        "product.half": KindConstants(arithmetic=0.8, tile_overhead=30.0, depth_overhead=200.0, launch_cycles=6000.0),
        "pointwise": KindConstants(bandwidth=0.8, cache=0.25, launch_cycles=3000.0),
    },
    names={"aten::slow": 1.0},
)


def works(count: int, seed: int) -> list[Work]:
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        rows, columns, depth = (int(size) for size in 2 ** random.uniform(3, 13, 3))
        product = Work(
            kind="product", name="aten::mm", operations=2.0 * rows * columns * depth, itemsize=2, arithmetic="bf16",
            read_bytes=2.0 * depth * (rows + columns), written_bytes=2.0 * rows * columns, rows=rows, columns=columns,
            depth=depth,
        )  # fmt: skip
        size = float(2 ** random.uniform(12, 30))
        name = str(random.choice(["aten::relu", "aten::slow"]))
        found += [product, Work(kind="pointwise", name=name, read_bytes=size, written_bytes=size, rows=int(size / 4))]
    return found


def twin(count: int, *, gpu: str = "H200", seed: int = 0, noise: float = 0.05) -> list[Sample]:
    chosen = works(count, seed)
    exact = seconds(WorkTable.of(chosen, 1e12), Rates.of(find_gpu(gpu)), TRUTH)
    random = np.random.default_rng(seed + 1)
    return [
        Sample(key=f"{seed}-{index // 6}", family="twin", gpu=gpu, work=work, seconds=float(value * np.exp(noise * e)))
        for index, (work, value, e) in enumerate(zip(chosen, exact, random.normal(size=len(exact)), strict=True))
    ]


def errors(samples: list[Sample], constants: Constants, gpu: str) -> float:
    table = WorkTable.of([sample.work for sample in samples], 1e12)
    predicted = seconds(table, Rates.of(find_gpu(gpu)), constants)
    return float(np.median(np.abs(predicted / [sample.seconds for sample in samples] - 1)))


def test_too_few_kernels_are_refused_with_their_number() -> None:
    from tonnage.benchmark.fit_kernels import LEAST_SAMPLES, fit_kernels

    with pytest.raises(TonnageError, match=f"10 kernels were measured.* at least {LEAST_SAMPLES}"):
        fit_kernels(twin(5))


def test_samples_of_gpus_that_the_catalogue_does_not_know_are_left_out() -> None:
    from tonnage.benchmark.fit_kernels import rows_by_gpu

    unknown = [replace(sample, gpu=name) for sample, name in zip(twin(5), ("", "GPU of tomorrow"), strict=False)]

    assert list(rows_by_gpu([*unknown, *twin(5)])) == ["H200"]


def test_leaving_a_gpu_out_needs_two() -> None:
    from tonnage.benchmark.fit_kernels import leave_gpus_out

    with pytest.raises(TonnageError, match="at least 2 GPUs, there are 1"):
        leave_gpus_out(twin(5))


def test_cross_validation_needs_enough_measurements() -> None:
    from tonnage.benchmark.fit_kernels import cross_validate

    with pytest.raises(TonnageError, match="at least 5 measurements, there are 1"):
        cross_validate(twin(3))


@pytest.mark.skipif(find_spec("scipy") is not None, reason="scipy is installed")
def test_a_missing_package_is_named() -> None:
    from tonnage.benchmark.fit_kernels import fit_kernels

    with pytest.raises(MissingDependency, match="scipy"):
        fit_kernels(twin(150))


@needs_scipy
def test_a_fit_finds_a_gpu_that_follows_the_formulas() -> None:
    from tonnage.benchmark.fit_kernels import fit_kernels

    model = fit_kernels(twin(150))

    assert errors(twin(100, seed=9, noise=0.0), model.constants, "H200") < 0.04
    assert model.constants.names["aten::slow"] - model.constants.names["aten::relu"] == pytest.approx(1.0, abs=0.15)


@needs_scipy
def test_classes_known_from_public_latencies_are_fitted_for_their_own_generation_only() -> None:
    from tonnage.benchmark.fit_kernels import fit_kernels

    kinds = fit_kernels(twin(150)).constants.kinds

    assert "product.half@HOPPER" in kinds
    assert "product.half" not in kinds


@needs_scipy
def test_another_gpu_of_the_same_libraries_is_predicted_too() -> None:
    from tonnage.benchmark.fit_kernels import leave_gpus_out

    found = leave_gpus_out([*twin(120), *twin(120, gpu="H100 SXM", seed=3)])

    assert set(found) == {"H200", "H100 SXM"}
    assert all(error.median < 0.08 for error in found.values())


@needs_scipy
def test_a_gpu_is_not_left_out_if_the_others_have_too_few_samples() -> None:
    from tonnage.benchmark.fit_kernels import leave_gpus_out

    assert set(leave_gpus_out([*twin(120), *twin(5, gpu="H100 SXM", seed=3)])) == {"H100 SXM"}


@needs_scipy
def test_a_few_points_of_a_gpu_improve_its_estimate() -> None:
    from tonnage.benchmark.fit_kernels import calibrate
    from tonnage.estimate.kernels.model import KernelModel

    gpu = find_gpu("A100 SXM 80GB")
    before = KernelModel(constants=Constants())
    points, unseen = (
        [s for s in twin(count, gpu=gpu.name, seed=seed) if s.seconds > 20e-6 and s.work.name != "aten::slow"]
        for count, seed in ((30, 0), (150, 5))
    )
    after = calibrate(before, points[:16], gpu)

    assert errors(unseen, after.constants, gpu.name) < 0.75 * errors(unseen, before.constants, gpu.name)


@needs_lightgbm
def test_exported_trees_answer_like_lightgbm() -> None:
    import lightgbm

    from tonnage.benchmark.residual_fit import nested
    from tonnage.estimate.trees import Trees, join

    random = np.random.default_rng(0)
    inputs = random.normal(size=(500, 6))
    target = np.sin(inputs[:, 0]) + inputs[:, 1] * inputs[:, 2]
    grown = lightgbm.train({"verbose": -1, "num_threads": 1, "num_leaves": 15}, lightgbm.Dataset(inputs, target), 40)
    trees = join([nested(tree["tree_structure"]) for tree in grown.dump_model()["tree_info"]])

    assert np.allclose(trees.predict(inputs), grown.predict(inputs), atol=1e-9)
    assert np.allclose(
        Trees.from_dict(trees.as_dict(), inputs.shape[1]).predict(inputs), grown.predict(inputs), atol=1e-3
    )


@needs_lightgbm
def test_trees_learn_what_the_formulas_do_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    from tonnage.benchmark import fit_kernels

    monkeypatch.setattr(fit_kernels, "OWN_TREES_SAMPLES", 300)
    samples = [
        replace(s, seconds=s.seconds * (1.6 if s.work.kind == "product" and s.work.rows % 2 else 1.0))
        for s in twin(300)
    ]
    product = next(error for error in fit_kernels.cross_validate(samples, folds=3) if error.kind == "product")

    assert product.median < 0.15
