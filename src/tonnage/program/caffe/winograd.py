"""Convolutions of 3 x 3 by Winograd's method F(4 x 4, 3 x 3): a quarter of the multiplications.

Tiles of 6 x 6 numbers are transformed, multiplied as 36 products of matrices, and transformed back to 4 x 4 results. Images
have their channels together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tonnage.errors import MissingDependency, UsageError
from tonnage.program.caffe.execution import CaffeModule
from tonnage.program.caffe.layers.windows import Convolution
from tonnage.program.caffe.processor import seconds_of, together

_TILE, _STEP = 6, 4
_PLACES = _TILE * _TILE
_TRIES = 3
_WORTH_IT = 0.9  # of the time of the direct convolution: a graph is interrupted by it
_MOST_BLOCK_NUMBERS = 700_000  # in what is transformed at once, so that it stays in the cache
# Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2015), section 4.1.
_INPUT = (
    (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1),
)  # fmt: skip
_KERNEL = (
    (1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1),
)  # fmt: skip
_OUTPUT = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))


def suits(convolution: Convolution) -> bool:
    """Windows of 3 x 3 at every place, over enough channels."""
    window, weight = convolution.window, convolution.weight
    plain = window.kernel == (3, 3) and window.stride == (1, 1) and window.dilation == (1, 1)
    return plain and convolution.groups == 1 and min(weight.shape[:2]) >= 16


class Winograd(nn.Module):
    """A convolution with its ReLU, for one image or several."""

    def __init__(self, convolution: Convolution) -> None:
        super().__init__()
        self._pad, self._slope = convolution.window.pad, convolution.slope
        outputs, inputs = convolution.weight.shape[:2]
        kernel = torch.tensor(_KERNEL, dtype=torch.float64)
        weight = torch.einsum("ia,kcab,jb->ijck", kernel, convolution.weight.data.double(), kernel)
        bias = convolution.bias
        self.weight = _fixed(weight.reshape(_PLACES, inputs, outputs))
        self.bias = _fixed(bias.data if bias is not None else torch.zeros(outputs))
        self.input, self.output = _fixed(_both_ways(_INPUT)), _fixed(_both_ways(_OUTPUT))

    def forward(self, image: Tensor) -> Tensor:
        count, _, height, width = image.shape
        height, width = height + 2 * self._pad[0] - 2, width + 2 * self._pad[1] - 2
        rows, columns = -(-height // _STEP), -(-width // _STEP)
        padded = self._padded(image, rows, columns)
        made = image.new_empty(count, rows * _STEP, columns * _STEP, self.weight.shape[2])
        each = max(1, _MOST_BLOCK_NUMBERS // (_PLACES * columns * max(self.weight.shape[1:])))
        if self.weight.numel() > 4 * _MOST_BLOCK_NUMBERS:
            each = rows  # weights that do not stay in the cache are read once
        for number in range(count):
            for first in range(0, rows, each):
                self._rows(padded[number], made[number], first, min(each, rows - first), columns)
        return made[:, :height, :width].permute(0, 3, 1, 2)

    def _padded(self, image: Tensor, rows: int, columns: int) -> Tensor:
        """With whole tiles, and channels last."""
        count, channels, height, width = image.shape
        top, left = self._pad
        padded = image.new_zeros(count, rows * _STEP + 2, columns * _STEP + 2, channels)
        padded[:, top : top + height, left : left + width] = image.permute(0, 2, 3, 1)
        return padded

    def _rows(self, padded: Tensor, made: Tensor, first: int, rows: int, columns: int) -> None:
        """Some rows of tiles."""
        channels, outputs, tiles = padded.shape[2], made.shape[2], rows * columns
        down, right, _ = padded.stride()
        start = padded.storage_offset() + first * _STEP * down
        view = padded.as_strided(
            (_TILE, _TILE, rows, columns, channels), (down, right, _STEP * down, _STEP * right, 1), start
        )
        transformed = torch.mm(self.input, view.reshape(_PLACES, tiles * channels)).view(_PLACES, tiles, channels)
        products = torch.bmm(transformed, self.weight).view(_PLACES, tiles * outputs)
        results = torch.mm(self.output, products).view(_STEP, _STEP, rows, columns, outputs)
        place = made[first * _STEP : (first + rows) * _STEP].view(rows, _STEP, columns, _STEP, outputs)
        torch.add(results.permute(2, 0, 3, 1, 4), self.bias, out=place)
        if self._slope is not None:
            torch.nn.functional.leaky_relu_(place, self._slope) if self._slope else torch.relu_(place)


def _both_ways(matrix: tuple[tuple[float, ...], ...]) -> Tensor:
    """Along rows and columns at once."""
    one = torch.tensor(matrix, dtype=torch.float64)
    return torch.kron(one, one)


def _fixed(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values.float().contiguous(), requires_grad=False)


# -- where it pays ----------------------------------------------------------------------------------------------------


def with_winograd(module: CaffeModule, examples: tuple[Tensor, ...]) -> CaffeModule:
    """The same module, with those convolutions replaced that are faster this way on inputs of the shapes of the examples.
    Raises `UsageError` where there is none."""
    images: dict[nn.Module, Tensor] = {}
    hooks = [
        each.register_forward_hook(lambda own, given, _: images.__setitem__(own, given[0]))
        for each in module.modules()
        if type(each) is Convolution and suits(each)
    ]
    together(module)(*examples)
    for hook in hooks:
        hook.remove()
    found = {own: _if_faster(own, images.pop(own)) for own in list(images) if isinstance(own, Convolution)}
    chosen: dict[nn.Module, nn.Module] = {own: other for own, other in found.items() if other is not None}
    if not chosen:
        raise UsageError("no convolution is faster by Winograd's method")
    return module.replaced(lambda own: chosen.get(own, own))


def _if_faster(convolution: Convolution, image: Tensor) -> Winograd | None:
    other, direct = Winograd(convolution), _packed(convolution, image)
    seconds = [seconds_of(run, (image,)) for _ in range(_TRIES) for run in (direct, other)]
    return other if min(seconds[1::2]) < _WORTH_IT * min(seconds[::2]) else None


def _packed(convolution: Convolution, image: Tensor) -> Callable[[Tensor], Tensor]:
    """As oneDNN runs it in a graph: with weights in its own order, and the ReLU with it."""
    operators: Any = torch.ops.mkldnn
    if not hasattr(operators, "_convolution_pointwise"):
        raise MissingDependency("this torch has no such operator of oneDNN")
    window = convolution.window
    settings = (list(window.pad), list(window.stride), list(window.dilation), convolution.groups)
    weight = operators._reorder_convolution_weight(convolution.weight.data, *settings, list(image.shape))
    run: Callable[..., Tensor] = operators._convolution_pointwise
    return lambda given: run(given, weight, convolution.bias, *settings, "relu", [], "")
