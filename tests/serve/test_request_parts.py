"""Checks of requests, classes of outputs, compression and regions of shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import shared_memory

import numpy as np
import pytest

from tonnage.serve.checking import Checker
from tonnage.serve.classification import check_classes, classified
from tonnage.serve.compression import chosen_encoding, compress, decompress
from tonnage.serve.configuration import ModelConfiguration, TensorSpec
from tonnage.serve.datatypes import Tensor, strings
from tonnage.serve.errors import InvalidRequest, TooLarge, UnknownThing, Unsupported
from tonnage.serve.requests import Request, RequestedOutput
from tonnage.serve.shared_regions import SharedRegions, Span

BATCHED = ModelConfiguration(
    name="model",
    max_batch_size=4,
    inputs=(
        TensorSpec(name="a", datatype="FP32", dims=(2,)),
        TensorSpec(name="b", datatype="FP32", dims=(-1, 3), reshape=(3, -1)),
    ),
    outputs=(TensorSpec(name="y", datatype="FP32", dims=(2,)), TensorSpec(name="s", datatype="BYTES", dims=(1,))),
)


def tensor(name: str, shape: tuple[int, ...], datatype: str = "FP32") -> Tensor:
    return Tensor(name, datatype, shape, bytes(int(np.prod(shape)) * 4))


def request_of(*inputs: Tensor, outputs: list[RequestedOutput] | None = None) -> Request:
    return Request("model", "", list(inputs), lambda _: None, outputs=outputs)


def test_inputs_are_put_in_order_and_reshaped() -> None:
    request = request_of(tensor("b", (2, 5, 3)), tensor("a", (2, 2)))
    Checker(BATCHED).check(request)
    assert [(each.name, each.shape) for each in request.inputs] == [("a", (2, 2)), ("b", (2, 3, 5))]
    assert request.rows == 2


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ([tensor("a", (1, 2))], "needs the input 'b'"),
        ([tensor("c", (1, 2))], "no input 'c'"),
        ([tensor("a", (1, 2), "INT32"), tensor("b", (1, 1, 3))], "is INT32; the model takes FP32"),
        ([tensor("a", (1, 3)), tensor("b", (1, 1, 3))], "has the shape [1, 3]"),
        ([tensor("a", (2,)), tensor("b", (1, 1, 3))], "has the shape [2]"),
        ([tensor("a", (1, 2)), tensor("a", (1, 2)), tensor("b", (1, 1, 3))], "given twice"),
        ([tensor("a", (1, 2)), tensor("b", (2, 1, 3))], "has 2 rows"),
        ([tensor("a", (5, 2)), tensor("b", (5, 1, 3))], "takes 1 to 4"),
        ([tensor("a", (0, 2)), tensor("b", (0, 1, 3))], "takes 1 to 4"),
        ([Tensor("a", "FP32", (1, 2), b"1234"), tensor("b", (1, 1, 3))], "has 4 bytes"),
    ],
)
def test_wrong_inputs_are_refused_by_name(inputs: list[Tensor], told: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Checker(BATCHED).check(request_of(*inputs))
    assert told in refused.value.message


def test_unknown_outputs_are_refused() -> None:
    request = request_of(tensor("a", (1, 2)), tensor("b", (1, 1, 3)), outputs=[RequestedOutput("z")])
    with pytest.raises(InvalidRequest, match="no output 'z'"):
        Checker(BATCHED).check(request)


def test_of_equal_scores_the_first_comes_first() -> None:
    scores = Tensor("y", "FP32", (2, 3), np.array([[1, 3, 3], [-1, -2, -1]], "<f4").tobytes())
    made = classified(scores, 2, ("cat", "dog"), True)
    assert made.shape == (2, 2)
    assert list(strings(made.data)) == [b"3.000000:1:dog", b"3.000000:2", b"-1.000000:0:cat", b"-1.000000:2"]


def test_large_whole_numbers_keep_their_order() -> None:
    scores = Tensor("y", "INT64", (2,), np.array([2**62, 2**62 + 1]).tobytes())
    assert list(strings(classified(scores, 1, (), False).data)) == [b"4611686018427387905:1"]


def test_strings_have_no_best_classes() -> None:
    with pytest.raises(InvalidRequest, match="output s is BYTES"):
        check_classes(request_of(outputs=[RequestedOutput("s", 1)]), BATCHED)


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("gzip", "gzip"), ("deflate, gzip", "deflate"), ("gzip, deflate", "gzip"), ("br", ""), ("", ""), ("gzip;q=0", ""),
        ("deflate;q=0.5, gzip", "gzip"), ("gzip;q=x, deflate", "deflate"),
    ],
)  # fmt: skip
def test_the_encoding_is_the_one_that_the_client_likes_best(accepted: str, chosen: str) -> None:
    assert chosen_encoding(accepted) == chosen


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_small_body_cannot_become_a_very_large_one(encoding: str) -> None:
    packed = compress(bytes(1_000_000), encoding)
    assert decompress(packed, encoding, 1_000_000) == bytes(1_000_000)
    with pytest.raises(TooLarge):
        decompress(packed, encoding, 999_999)
    with pytest.raises(InvalidRequest):
        decompress(packed[:-1], encoding, 1_000_000)


def test_an_unknown_encoding_is_not_supported() -> None:
    with pytest.raises(Unsupported, match="br"):
        decompress(b"", "br", 10)


@pytest.fixture
def key() -> Iterator[str]:
    memory = shared_memory.SharedMemory(create=True, size=64)
    memory.buf[:4] = b"1234"
    yield memory.name
    memory.close()
    memory.unlink()


def test_a_region_is_read_within_its_bounds(key: str) -> None:
    regions = SharedRegions()
    regions.register("region", key, 2, 8)
    assert regions.read(Span("region", 0, 2)) == b"34"
    with pytest.raises(InvalidRequest, match="outside"):
        regions.read(Span("region", 4, 5))
    with pytest.raises(InvalidRequest, match="already"):
        regions.register("region", key, 0, 8)
    regions.unregister("region")
    with pytest.raises(UnknownThing):
        regions.read(Span("region", 0, 2))


@pytest.mark.parametrize("key", ["../etc/passwd", "/", "..", "a/b", "tonnage-nothing"])
def test_keys_that_are_no_shared_memory_are_refused(key: str) -> None:
    with pytest.raises(InvalidRequest):
        SharedRegions().register("region", key, 0, 8)


def test_an_output_that_is_too_large_for_its_span_is_refused(key: str) -> None:
    regions = SharedRegions()
    regions.register("region", key, 0, 64)
    with pytest.raises(InvalidRequest, match="8 bytes; 4 were kept"):
        regions.write(Span("region", 0, 4), tensor("y", (2,)))
