"""Scores as names: where a client asks for the best classes of an output instead of its numbers."""

from __future__ import annotations

from math import prod

import numpy as np

from tonnage.serve.configuration import ModelConfiguration
from tonnage.serve.datatypes import BYTES, Tensor, as_array, join_strings
from tonnage.serve.errors import InvalidRequest
from tonnage.serve.requests import Request

_NO_SCORES = ("BOOL", "FP16", "BF16", BYTES)  # as Triton has it


def classified(tensor: Tensor, classes: int, labels: tuple[str, ...], has_batches: bool) -> Tensor:
    """The best so many, each as `score:index` or `score:index:label`, best first."""
    rows = tensor.shape[0] if has_batches and tensor.shape else 1
    scores = as_array(tensor.datatype, tensor.shape, tensor.data).reshape(rows, -1)
    count = min(classes, scores.shape[1])
    last = scores.shape[1] - 1  # from behind, so that of equals the first comes first
    best = last - np.argsort(scores[:, ::-1], axis=1, kind="stable")[:, ::-1][:, :count]
    texts = [
        _text(row[index], int(index), labels) for row, places in zip(scores, best, strict=True) for index in places
    ]
    shape = (rows, count) if has_batches else (count,)
    assert prod(shape) == len(texts)
    return Tensor(tensor.name, BYTES, shape, join_strings(text.encode() for text in texts))


def check_classes(request: Request, configuration: ModelConfiguration) -> None:
    """Before anything runs: can these outputs be classified?"""
    datatypes = {spec.name: spec.datatype for spec in configuration.outputs}
    for each in request.outputs or ():
        if each.classes and datatypes[each.name] in _NO_SCORES:
            raise InvalidRequest(f"output {each.name} is {datatypes[each.name]}, of which there are no best classes")


def with_classes(outputs: list[Tensor], request: Request, configuration: ModelConfiguration) -> list[Tensor]:
    """The outputs of a request, where it asks for classes of some."""
    classes = {each.name: each.classes for each in request.outputs or () if each.classes}
    if not classes:
        return outputs
    labels = {spec.name: spec.labels for spec in configuration.outputs}
    return [
        classified(each, classes[each.name], labels[each.name], configuration.has_batches)
        if each.name in classes
        else each
        for each in outputs
    ]


def _text(score: np.generic, index: int, labels: tuple[str, ...]) -> str:
    number = f"{score:f}" if score.dtype.kind == "f" else str(score)
    return f"{number}:{index}:{labels[index]}" if index < len(labels) else f"{number}:{index}"
