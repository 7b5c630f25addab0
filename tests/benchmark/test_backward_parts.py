"""Kernels of a convolution's backward pass, told apart by name and order."""

from tonnage.benchmark.backward_parts import split_backward

ALL = {"output_mask": (True, True, True)}
BOTH = {"output_mask": (True, True, False)}
SUM = ("void at::native::reduce_kernel<512, 1>", 2.0)


def test_names_tell_where_the_gradient_of_the_weights_begins() -> None:
    kernels = [
        ("sm90_xmma_dgrad_implicit_gemm", 5.0),
        ("Memset (Device)", 1.0),
        ("sm90_xmma_wgrad_implicit_gemm", 7.0),
        SUM,
    ]

    assert split_backward(kernels, ALL) == {"data": 5.0, "weight": 8.0, "bias": 2.0}


def test_conversions_belong_to_the_part_that_they_enclose() -> None:
    kernels = [
        ("cudnn::nchwToNhwcKernel", 1.0), ("cutlass_cudnn::Kernel", 5.0), ("cudnn::nhwcToNchwKernel", 1.0),
        ("cudnn::nchwToNhwcKernel", 1.0), ("xmma_wgrad", 7.0), ("cudnn::nhwcToNchwKernel", 1.0),
    ]  # fmt: skip

    assert split_backward(kernels, BOTH) == {"data": 7.0, "weight": 9.0}


def test_native_depthwise_kernels_come_in_the_other_order() -> None:
    kernels = [("conv_depthwise2d_grad_weight_kernel", 3.0), ("conv_depthwise2d_backward_kernel", 4.0)]

    assert split_backward(kernels, BOTH) == {"data": 4.0, "weight": 3.0}


def test_two_plain_products_are_the_data_and_the_weights() -> None:
    kernels = [("void cutlass::Kernel2<a>", 3.0), ("void cutlass::Kernel2<b>", 4.0), ("splitKreduce_kernel", 1.0)]

    assert split_backward(kernels, BOTH) == {"data": 3.0, "weight": 5.0}


def test_a_single_part_takes_everything() -> None:
    assert split_backward([("a", 1.0), ("b", 2.0)], {"output_mask": (False, True, False)}) == {"weight": 3.0}


def test_what_cannot_be_told_apart_is_left_out() -> None:
    assert split_backward([("a", 1.0), ("b", 2.0), ("c", 3.0)], BOTH) == {}
    assert split_backward([("a", 1.0)], ALL) == {}
