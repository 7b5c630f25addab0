"""The kernel model as a value: round trips, damage, corrections that stay within bounds."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernel_works import H200, convolution, every_kind_of_work, table

from tonnage.estimate.kernels.constants import Constants, KindConstants
from tonnage.estimate.kernels.features import FEATURES
from tonnage.estimate.kernels.model import MOST_CORRECTION, KernelModel, Residual
from tonnage.estimate.trees import join
from tonnage.hardware import find_gpu

T4 = find_gpu("T4")


def stump(value: float) -> dict[str, Any]:
    return {"feature": FEATURES.index("rows"), "threshold": 8.0, "left": {"value": value}, "right": {"value": -value}}


def model(value: float = 0.5) -> KernelModel:
    constants = Constants(
        kinds={"product.half@HOPPER": KindConstants(tail=0.2), "softmax": KindConstants(cache=0.3)},
        names={"aten::relu": 0.25},
        resident=0.8,
    )
    trees = {group: join([stump(value)]) for group in ("products", "convolutions", "others")}
    return KernelModel(constants=constants, residuals=(Residual(gpu="H200", architecture="Hopper", trees=trees),))


def test_a_model_survives_its_file() -> None:
    before = model()
    after = KernelModel.from_dict(json.loads(json.dumps(before.as_dict())))
    works = table(*every_kind_of_work())

    assert np.allclose(after.seconds(works, H200), before.seconds(works, H200), rtol=1e-6)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("kinds", "product.half@HOPPER", "tail"), float("nan")),
        (("kinds", "product.half@HOPPER", "tail"), -1.0),
        (("kinds", "nothing"), {}),
        (("kinds", "softmax@NOBODY"), {}),
        (("names", "aten::relu"), float("inf")),
        (("residuals", 0, "trees", "products", "left"), [999, 1, 2]),
        (("residuals", 0, "trees", "products", "value"), [1.0]),
    ],
)
def test_a_damaged_model_is_refused(path: tuple[Any, ...], value: Any) -> None:
    plain = model().as_dict()
    place = plain
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value

    with pytest.raises(ValueError, match=r"."):
        KernelModel.from_dict(plain)


def test_a_model_of_other_constants_is_refused() -> None:
    plain = model().as_dict()
    plain["kinds"]["softmax"]["magic"] = 1.0

    with pytest.raises(ValueError, match=r"softmax\.magic is unknown"):
        KernelModel.from_dict(plain)


def test_what_was_learned_moves_an_answer_only_so_far() -> None:
    works = table(*every_kind_of_work())
    base = KernelModel(constants=model().constants).seconds(works, H200)
    moved = model(value=50.0).seconds(works, H200)

    assert np.abs(np.log(moved / base)).max() <= MOST_CORRECTION + 1e-9


def test_gpus_of_other_architectures_take_over_only_what_concerns_convolutions_on_tensor_cores() -> None:
    works = [*every_kind_of_work(), replace(convolution(8, 14, 64, 64), arithmetic="fp16", itemsize=2)]
    base, learned = KernelModel(constants=model().constants), model()
    moved = np.log(learned.seconds(table(*works), T4) / base.seconds(table(*works), T4))
    own = np.log(learned.seconds(table(*works), H200) / base.seconds(table(*works), H200))

    assert not moved[:-1].any()
    assert moved[-1] == pytest.approx(0.7 * own[-1])


def test_gpus_of_the_same_architecture_share_what_was_learned() -> None:
    works, gpu = table(*every_kind_of_work()), find_gpu("H100 SXM")
    base = KernelModel(constants=model().constants)

    assert not np.array_equal(model().seconds(works, gpu), base.seconds(works, gpu))
