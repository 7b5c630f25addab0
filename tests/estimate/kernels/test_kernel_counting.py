"""What operators ask of a GPU."""

import pytest

from tonnage.estimate.kernels.elementwise import merged_dims, strides
from tonnage.estimate.kernels.operators import works_of
from tonnage.estimate.kernels.work import Rules, Work
from tonnage.program.trace import Operator, TensorSpec


def spec(*shape: int, dtype: str = "float32", layout: str = "contiguous", strides: tuple[int, ...] = ()) -> TensorSpec:
    return TensorSpec(shape, dtype, layout, strides)


def one(operator: Operator, rules: Rules | None = None) -> Work:
    (work,) = works_of(operator, rules or Rules())
    return work


def test_a_product_multiplies_and_adds_once_for_each_triple() -> None:
    work = one(Operator("aten::mm", (spec(10, 20), spec(20, 30)), (spec(10, 30),)))

    assert (work.operations, work.read_bytes, work.written_bytes) == (2 * 10 * 20 * 30, 4 * (200 + 600), 4 * 300)


def test_tf32_is_only_used_where_the_program_allows_it() -> None:
    operator = Operator("aten::mm", (spec(10, 20), spec(20, 30)), (spec(10, 30),))

    assert [one(operator, Rules(matmul_tf32=allowed)).arithmetic for allowed in (False, True)] == ["fp32", "tf32"]


def test_the_weight_of_a_linear_layer_is_a_transposed_operand() -> None:
    weight = spec(20, 30, layout="strided", strides=(1, 20))
    work = one(Operator("aten::addmm", (spec(30), spec(10, 20), weight), (spec(10, 30),)))

    assert (work.first_transposed, work.second_transposed) == (False, True)


def convolution_backward(mask: tuple[bool, bool, bool], stride: int = 1) -> Operator:
    inputs = (spec(2, 16, 8 // stride, 8 // stride), spec(2, 4, 8, 8), spec(16, 4, 3, 3))
    return Operator(
        "aten::convolution_backward", inputs, inputs[1:],
        {"output_mask": mask, "stride": (stride, stride), "groups": 1, "transposed": False},
    )  # fmt: skip


def test_the_backward_pass_of_a_convolution_has_three_parts() -> None:
    works = works_of(convolution_backward((True, True, True)), Rules())

    assert [work.kind for work in works] == ["convolution_data", "convolution_weight", "reduction"]


def test_all_gradients_of_a_convolution_need_the_same_arithmetic() -> None:
    data, weight = works_of(convolution_backward((True, True, False), stride=2), Rules())

    assert data.operations == weight.operations == 2 * (2 * 16 * 4 * 4) * 4 * 9


def test_an_expanded_tensor_is_read_once() -> None:
    expanded = spec(64, 32, layout="strided", strides=(0, 1))
    work = one(Operator("aten::mul", (spec(64, 32), expanded), (spec(64, 32),)))

    assert work.read_bytes == 4 * (64 * 32 + 32)


def test_views_need_nothing() -> None:
    assert works_of(Operator("aten::view", (spec(4),), (spec(2, 2),)), Rules()) == ()


def test_an_unknown_operator_moves_its_bytes() -> None:
    work = one(Operator("aten::of_tomorrow", (spec(100),), (spec(100),)))

    assert (work.kind, work.bytes) == ("pointwise", 800)


def test_a_batch_norm_has_as_many_rows_as_channels() -> None:
    image = spec(2, 16, 8, 8)
    work = one(Operator("aten::cudnn_batch_norm", (image, spec(16), spec(16)), (image,)))

    assert (work.kind, work.rows, work.depth) == ("cudnn_normalisation", 16, 128)


@pytest.mark.parametrize(("tokens", "launches"), [(100, 1.0), (5000, 31.0)])
def test_the_gradient_of_a_large_embedding_sorts_its_indices(tokens: int, launches: float) -> None:
    operator = Operator(
        "aten::embedding_dense_backward", (spec(tokens, 64), spec(tokens, dtype="int64")), (spec(1000, 64),)
    )

    assert one(operator).launches == launches


def test_causal_attention_needs_half_of_the_arithmetic() -> None:
    tokens = spec(2, 4, 128, 64, dtype="bfloat16")
    name = "aten::_scaled_dot_product_flash_attention"
    full, causal = (
        one(Operator(name, (tokens,) * 3, (tokens,), {"is_causal": is_causal})) for is_causal in (False, True)
    )

    assert (full.operations, causal.operations) == (4 * 8 * 128 * 128 * 64, 2 * 8 * 128 * 128 * 64)


# -- elementwise operators ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operands", "dims"),
    [
        ((spec(8, 4), spec(8, 4)), 1),
        ((spec(8, 4), spec()), 1),
        ((spec(8, 4), spec(4)), 2),
        ((spec(8, 4), spec(8, 1)), 2),
        ((spec(2, 8, 4), spec(2, 1, 4)), 3),
        ((spec(2, 3, 8, 8), spec(3, 8, 8)), 2),
        ((spec(2, 3, 8, 8), spec(2, 3, 1, 1)), 2),
        ((spec(2, 3, 8, 8, layout="channels_last"), spec(2, 3, 8, 8, layout="channels_last")), 1),
        ((spec(2, 3, 8, 8, layout="channels_last"), spec(2, 3, 8, 8)), 3),
        ((spec(8, 4, layout="strided", strides=(1, 8)), spec(8, 4, layout="strided", strides=(1, 8))), 1),
        ((spec(8, 4, layout="strided", strides=(1, 8)), spec(8, 4)), 2),
        ((spec(5, 4), spec(3, 4)), 1),  # no elementwise operator at all
        ((), 1),
    ],
)
def test_dimensions_that_are_neighbours_for_all_operands_are_one(operands: tuple[TensorSpec, ...], dims: int) -> None:
    assert merged_dims(operands) == dims


def test_strides_of_every_layout() -> None:
    assert strides(spec()) == ()
    assert strides(spec(2, 3, 4)) == (12, 4, 1)
    assert strides(spec(2, 3, 4, 5, layout="channels_last")) == (60, 1, 15, 3)


def test_a_comparison_converts_nothing_and_a_mixed_product_does() -> None:
    compared = one(Operator("aten::gt", (spec(8), spec(8)), (spec(8, dtype="bool"),)))
    mixed = one(Operator("aten::mul", (spec(8), spec(8, dtype="bool")), (spec(8),)))

    assert (compared.groups, mixed.groups) == (1, 2)


# -- batch normalisation --------------------------------------------------------------------------------------------------


def batch_norm(dtype: str, weight: str = "float32", training: bool = True, name: str = "native_batch_norm") -> Work:
    image, channels = spec(4, 8, 16, 16, dtype=dtype), spec(8, dtype=weight)
    return one(Operator(f"aten::{name}", (image, *[channels] * 4), (image,), {"training": training}))


def test_batch_normalisation_is_cudnns_where_pytorch_gives_it_away() -> None:
    cudnn, own = "cudnn_normalisation", "batch_normalisation"
    assert [batch_norm("float32").kind, batch_norm("float16").kind] == [cudnn, cudnn]
    assert [batch_norm("bfloat16").kind, batch_norm("float16", "float16").kind] == [own, own]
    assert batch_norm("float32") == batch_norm("float32", name="cudnn_batch_norm")


def test_batch_normalisation_with_known_statistics_is_elementwise() -> None:
    assert batch_norm("float32", training=False).kind == "pointwise"


def test_rows_that_are_scattered_are_copied_before_they_are_normalised() -> None:
    image = spec(4, 16, 8, layout="strided", strides=(128, 1, 16))
    operator = Operator(
        "aten::native_layer_norm", (image, spec(8), spec(8)), (spec(4, 16, 8),), {"normalized_shape": (8,)}
    )

    assert [work.kind for work in works_of(operator, Rules())] == ["normalisation", "movement"]


def test_a_bag_of_embeddings_reads_all_its_rows() -> None:
    inputs = (spec(1000, 64), spec(320, dtype="int64"), spec(32, dtype="int64"))
    work = one(Operator("aten::_embedding_bag", inputs, (spec(32, 64),)))

    assert work.read_bytes >= 320 * 64 * 4
