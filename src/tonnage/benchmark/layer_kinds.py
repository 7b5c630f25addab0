"""The kinds of single layers: each makes a scene that runs its forward and backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tonnage.benchmark.layers import Draw, Scene, Stage, kind

Function = Callable[..., torch.Tensor]


class Bench:
    """What the makers need: tensors and modules on the device, and a scene around a function."""

    def __init__(self, device: str, dtype: str) -> None:
        self.device, self.dtype = device, getattr(torch, dtype)

    def tensor(self, *shape: int, grad: bool = True, channels_last: bool = False) -> torch.Tensor:
        value = torch.randn(*shape, device=self.device).to(self.dtype)
        if channels_last:
            value = value.to(memory_format=torch.channels_last)
        return value.requires_grad_(grad)

    def indices(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, device=self.device)

    def module(self, module: nn.Module, channels_last: bool = False) -> nn.Module:
        module = module.to(device=self.device, dtype=self.dtype)
        return module.to(memory_format=torch.channels_last) if channels_last else module

    def scene(self, function: Function, *inputs: torch.Tensor, leaves: Iterable[torch.Tensor] = ()) -> Scene:
        """As in a network: the first input and the arriving gradient have just been written, all else has not."""
        master = inputs[0].detach().clone(memory_format=torch.preserve_format)
        gradients: list[torch.Tensor] = []
        leaves = (*inputs, *leaves)

        def run(stage: Stage) -> None:
            stage.phase("prepare")
            stage.forget()
            with torch.no_grad():
                inputs[0].copy_(master)
            stage.phase("forward")
            result = function(*inputs)
            stage.phase("prepare")
            if result.requires_grad:
                if not gradients:
                    gradients.append(torch.randn_like(result))
                stage.forget()
                arriving = gradients[0].clone()
                result.backward(arriving)
            for leaf in leaves:
                leaf.grad = None

        return run

    def layer(self, module: nn.Module, *inputs: torch.Tensor, channels_last: bool = False) -> Scene:
        module = self.module(module, channels_last)
        return self.scene(module, *inputs, leaves=tuple(module.parameters()))


# -- matrix products ------------------------------------------------------------------------------------------------------


def _rows(draw: Draw) -> int:
    """Rows of a product: samples, or tokens of all samples."""
    return int(draw.among(draw.log(1, 512), draw.power(64, 65536), draw.log(64, 40000)))


@kind(
    14, rows=_rows, depth=lambda d: d.width(8, 16384), columns=lambda d: d.width(2, 32768),
    bias=lambda d: d.chance(0.7), tf32=lambda d: d.chance(0.3),
)  # fmt: skip
def linear(bench: Bench, rows: int, depth: int, columns: int, bias: bool, tf32: bool) -> Scene:
    with_tf32(tf32)
    return bench.layer(nn.Linear(depth, columns, bias=bias), bench.tensor(rows, depth))


@kind(
    6, batch=lambda d: d.log(2, 2048), rows=lambda d: d.among(d.log(1, 4096), d.power(16, 2048)),
    depth=lambda d: d.among(32, 64, 80, 96, 128, d.log(4, 2048)), columns=lambda d: d.among(d.log(1, 4096), d.power(16, 2048)),
    transpose=lambda d: d.among("nn", "nt", "tn"), tf32=lambda d: d.chance(0.2),
)  # fmt: skip
def bmm(bench: Bench, batch: int, rows: int, depth: int, columns: int, transpose: str, tf32: bool) -> Scene:
    with_tf32(tf32)
    left = bench.tensor(batch, depth, rows) if transpose == "tn" else bench.tensor(batch, rows, depth)
    right = bench.tensor(batch, columns, depth) if transpose == "nt" else bench.tensor(batch, depth, columns)

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a.mT if transpose == "tn" else a, b.mT if transpose == "nt" else b)

    return bench.scene(product, left, right)


def with_tf32(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed


# -- convolutions ---------------------------------------------------------------------------------------------------------


@kind(
    16, batch=lambda d: d.log(1, 256), channels=lambda d: d.among(3, d.width(8, 2048), d.width(16, 512), weights=(1, 4, 4)),
    filters=lambda d: d.among(d.width(8, 2048), d.width(16, 512)), kernel=lambda d: d.among(1, 3, 5, 7, 4, weights=(4, 7, 1, 1, 0.5)),
    stride=lambda d: d.among(1, 2, weights=(4, 1)), size=Draw.size, groups=lambda d: d.among(1, 32, 8, weights=(16, 1, 1)),
    dilation=lambda d: d.among(1, 2, weights=(12, 1)), channels_last=lambda d: d.chance(0.35), bias=lambda d: d.chance(0.4),
)  # fmt: skip
def conv2d(
    bench: Bench, batch: int, channels: int, filters: int, kernel: int, stride: int, size: int, groups: int,
    dilation: int, channels_last: bool, bias: bool,
) -> Scene:  # fmt: skip
    layer = nn.Conv2d(
        channels, filters, kernel, stride, padding=dilation * (kernel // 2), groups=groups, dilation=dilation, bias=bias
    )
    inputs = bench.tensor(batch, channels, size, size, channels_last=channels_last, grad=channels != 3)
    return bench.layer(layer, inputs, channels_last=channels_last)


@kind(
    4, batch=lambda d: d.log(1, 256), channels=lambda d: d.width(16, 2048), kernel=lambda d: d.among(3, 5, 7),
    stride=lambda d: d.among(1, 2, weights=(3, 1)), size=Draw.size, channels_last=lambda d: d.chance(0.35),
)  # fmt: skip
def depthwise(
    bench: Bench, batch: int, channels: int, kernel: int, stride: int, size: int, channels_last: bool
) -> Scene:
    layer = nn.Conv2d(channels, channels, kernel, stride, padding=kernel // 2, groups=channels, bias=False)
    inputs = bench.tensor(batch, channels, size, size, channels_last=channels_last)
    return bench.layer(layer, inputs, channels_last=channels_last)


@kind(
    2, batch=lambda d: d.log(1, 128), channels=lambda d: d.width(8, 1024), filters=lambda d: d.width(8, 512),
    kernel=lambda d: d.among(2, 3, 4), stride=lambda d: d.among(1, 2, weights=(1, 3)), size=lambda d: d.log(4, 96),
)  # fmt: skip
def conv_transpose2d(
    bench: Bench, batch: int, channels: int, filters: int, kernel: int, stride: int, size: int
) -> Scene:
    layer = nn.ConvTranspose2d(channels, filters, kernel, stride, padding=(kernel - 1) // 2)
    return bench.layer(layer, bench.tensor(batch, channels, size, size))


@kind(
    3, batch=lambda d: d.log(1, 128), channels=lambda d: d.width(8, 1024), filters=lambda d: d.width(8, 1024), dims=lambda d: 1,
    kernel=lambda d: d.among(1, 3, 5, 9), dilation=lambda d: d.among(1, 2, 8), size=lambda d: d.log(32, 16000),
)  # fmt: skip
def conv1d(
    bench: Bench, batch: int, channels: int, filters: int, dims: int, kernel: int, dilation: int, size: int
) -> Scene:
    layer = nn.Conv1d(channels, filters, kernel, padding=dilation * (kernel // 2), dilation=dilation)
    return bench.layer(layer, bench.tensor(batch, channels, size))


@kind(
    1.5, batch=lambda d: d.log(1, 32), channels=lambda d: d.among(3, d.width(8, 512)), filters=lambda d: d.width(8, 512),
    dims=lambda d: 3, kernel=lambda d: d.among(1, 3), stride=lambda d: d.among(1, 2), size=lambda d: d.log(4, 64),
)  # fmt: skip
def conv3d(
    bench: Bench, batch: int, channels: int, filters: int, dims: int, kernel: int, stride: int, size: int
) -> Scene:
    layer = nn.Conv3d(channels, filters, kernel, stride, padding=kernel // 2, bias=False)
    return bench.layer(layer, bench.tensor(batch, channels, size, size, size, grad=channels != 3))


# -- attention and recurrence ---------------------------------------------------------------------------------------------


@kind(
    6, batch=lambda d: d.log(1, 256), heads=lambda d: d.among(1, 4, 6, 8, 12, 16, 32), rows=lambda d: d.among(d.log(16, 4096), d.power(64, 4096)),
    head=lambda d: d.among(32, 64, 80, 96, 128, 256, weights=(2, 6, 1, 1, 4, 0.5)), causal=lambda d: d.chance(0.5),
    mask=lambda d: d.chance(0.15), dropout=lambda d: d.among(0.0, 0.1, weights=(4, 1)),
)  # fmt: skip
def attention(
    bench: Bench, batch: int, heads: int, rows: int, head: int, causal: bool, mask: bool, dropout: float
) -> Scene:
    # As projections leave them: heads are split off the last dimension.
    packed = [bench.tensor(batch, rows, heads, head) for _ in range(3)]
    bias = bench.tensor(batch, 1, rows, rows, grad=False) if mask else None

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.transpose(1, 2) for t in (query, key, value))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, is_causal=causal and not mask)

    return bench.scene(attend, *packed)


@kind(
    2, batch=lambda d: d.log(1, 256), rows=lambda d: d.log(4, 256), depth=lambda d: d.width(16, 1536), columns=lambda d: d.width(16, 1536),
    layers=lambda d: d.among(1, 2, 3), cell=lambda d: d.among("LSTM", "GRU", "RNN"), bidirectional=lambda d: d.chance(0.25),
)  # fmt: skip
def recurrent(
    bench: Bench, batch: int, rows: int, depth: int, columns: int, layers: int, cell: str, bidirectional: bool
) -> Scene:
    module = bench.module(getattr(nn, cell)(depth, columns, layers, bidirectional=bidirectional, batch_first=True))
    return bench.scene(lambda x: module(x)[0], bench.tensor(batch, rows, depth), leaves=tuple(module.parameters()))


# -- normalisation --------------------------------------------------------------------------------------------------------


@kind(
    5, batch=lambda d: d.log(1, 512), channels=lambda d: d.width(8, 2048), size=Draw.size, channels_last=lambda d: d.chance(0.3),
    training=lambda d: d.chance(0.85),
)  # fmt: skip
def batch_norm(bench: Bench, batch: int, channels: int, size: int, channels_last: bool, training: bool) -> Scene:
    module = nn.BatchNorm2d(channels).to(bench.device).train(training)  # in float32 also under autocast
    inputs = bench.tensor(batch, channels, size, size, channels_last=channels_last)
    return bench.scene(module, inputs, leaves=tuple(module.parameters()))


@kind(5, rows=lambda d: d.log(1, 65536), columns=lambda d: d.width(32, 8192), rms=lambda d: d.chance(0.3))
def layer_norm(bench: Bench, rows: int, columns: int, rms: bool) -> Scene:
    return bench.layer(nn.RMSNorm(columns) if rms else nn.LayerNorm(columns), bench.tensor(rows, columns))


@kind(
    2,
    batch=lambda d: d.log(1, 128),
    channels=lambda d: 32 * d.log(1, 40),
    size=Draw.size,
    parts=lambda d: d.among(1, 8, 32),
)
def group_norm(bench: Bench, batch: int, channels: int, size: int, parts: int) -> Scene:
    return bench.layer(nn.GroupNorm(parts, channels), bench.tensor(batch, channels, size, size))


@kind(
    4,
    rows=lambda d: d.log(1, 65536),
    columns=lambda d: d.among(d.log(2, 4096), d.width(64, 50304)),
    log=lambda d: d.chance(0.3),
)
def softmax(bench: Bench, rows: int, columns: int, log: bool) -> Scene:
    return bench.scene(lambda x: F.log_softmax(x, -1) if log else F.softmax(x, -1), bench.tensor(rows, columns))


# -- elementwise ----------------------------------------------------------------------------------------------------------

_UNARY: dict[str, Function] = {
    "relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "leaky_relu": F.leaky_relu, "exp": torch.exp, "square": lambda x: x**2, "hardswish": F.hardswish,
    "scale": lambda x: x * 0.5, "shift": lambda x: x + 1.0, "negate": torch.neg, "elu": F.elu, "sqrt": lambda x: x.abs().sqrt(),
    "dropout": lambda x: F.dropout(x, 0.1), "clamp": lambda x: x.clamp(-1, 1), "mish": F.mish, "softplus": F.softplus,
    "power": lambda x: torch.pow(x.abs(), 1.5), "cos": torch.cos, "relu_": lambda x: F.relu(x + 0.0, inplace=True),
}  # fmt: skip


def _elements(draw: Draw) -> int:
    return draw.log(64, 1 << 27)


@kind(6, rows=_elements, function=lambda d: d.among(*_UNARY))
def unary(bench: Bench, rows: int, function: str) -> Scene:
    return bench.scene(_UNARY[function], bench.tensor(rows))


_BINARY: dict[str, Function] = {
    "add": torch.add, "multiply": torch.mul, "subtract": torch.sub, "divide": torch.div, "maximum": torch.maximum,
    "greater": lambda a, b: (a > b), "where": lambda a, b: torch.where(a > 0, a, b), "lerp": lambda a, b: torch.lerp(a, b, 0.1),
    "addcmul": lambda a, b: torch.addcmul(a, b, b), "swiglu": lambda a, b: F.silu(a) * b, "mse": F.mse_loss,
    "l1": F.l1_loss, "smooth_l1": F.smooth_l1_loss, "bce": F.binary_cross_entropy_with_logits,
}  # fmt: skip


@kind(5, rows=_elements, function=lambda d: d.among(*_BINARY))
def binary(bench: Bench, rows: int, function: str) -> Scene:
    return bench.scene(_BINARY[function], bench.tensor(rows), bench.tensor(rows, grad=function not in ("bce",)))


@kind(
    4, rows=lambda d: d.log(1, 65536), columns=lambda d: d.width(4, 8192), side=lambda d: d.among("row", "column", "scalar"),
    function=lambda d: d.among("add", "multiply", "divide", "subtract"),
)  # fmt: skip
def broadcast(bench: Bench, rows: int, columns: int, side: str, function: str) -> Scene:
    shape = {"row": (1, columns), "column": (rows, 1), "scalar": (1, 1)}[side]
    return bench.scene(_BINARY[function], bench.tensor(rows, columns), bench.tensor(*shape))


@kind(
    2,
    batch=lambda d: d.log(1, 128),
    channels=lambda d: d.width(8, 1024),
    size=Draw.size,
    function=lambda d: d.among("add", "multiply"),
)
def channel_broadcast(bench: Bench, batch: int, channels: int, size: int, function: str) -> Scene:
    """A bias or a gate per channel, as in squeeze-and-excitation."""
    return bench.scene(
        _BINARY[function], bench.tensor(batch, channels, size, size), bench.tensor(batch, channels, 1, 1)
    )


@kind(3, rows=_elements, target=lambda d: d.among("float32", "bfloat16", "float16", "int64", "bool"))
def cast(bench: Bench, rows: int, target: str) -> Scene:
    return bench.scene(lambda x: x.to(getattr(torch, target)), bench.tensor(rows))


# -- movement -------------------------------------------------------------------------------------------------------------


@kind(
    4, batch=lambda d: d.log(1, 256), rows=lambda d: d.log(4, 2048), columns=lambda d: d.log(4, 1024),
    order=lambda d: d.among("swap", "last", "heads"),
)  # fmt: skip
def transpose(bench: Bench, batch: int, rows: int, columns: int, order: str) -> Scene:
    def rearrange(x: torch.Tensor) -> torch.Tensor:
        if order == "swap":
            return x.transpose(1, 2).contiguous()
        if order == "last":
            return x.permute(2, 0, 1).contiguous()
        part = max(k for k in (1, 2, 4, 8, 16) if columns % k == 0)
        return x.view(batch, rows, part, columns // part).transpose(1, 2).contiguous()

    return bench.scene(rearrange, bench.tensor(batch, rows, columns))


@kind(
    3,
    batch=lambda d: d.log(1, 64),
    channels=lambda d: d.width(8, 512),
    size=Draw.size,
    parts=lambda d: d.among(2, 3, 4, 8),
    along=lambda d: d.among(0, 1),
)
def concatenate(bench: Bench, batch: int, channels: int, size: int, parts: int, along: int) -> Scene:
    pieces = [bench.tensor(batch, max(channels // parts, 1), size, size) for _ in range(parts)]
    return bench.scene(lambda *x: torch.cat(x, along), *pieces)


@kind(
    2,
    batch=lambda d: d.log(1, 64),
    channels=lambda d: d.width(8, 512),
    size=Draw.size,
    channels_last=lambda d: d.chance(0.5),
)
def memory_format(bench: Bench, batch: int, channels: int, size: int, channels_last: bool) -> Scene:
    target = torch.contiguous_format if channels_last else torch.channels_last
    inputs = bench.tensor(batch, channels, size, size, channels_last=channels_last)
    return bench.scene(lambda x: x.contiguous(memory_format=target), inputs)


@kind(
    2,
    batch=lambda d: d.log(1, 64),
    channels=lambda d: d.width(4, 256),
    size=Draw.size,
    function=lambda d: d.among("pad", "reflect", "roll", "slice", "flip", "shuffle"),
)
def rearrange(bench: Bench, batch: int, channels: int, size: int, function: str) -> Scene:
    functions: dict[str, Function] = {
        "pad": lambda x: F.pad(x, (1, 1, 1, 1)), "reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
        "roll": lambda x: torch.roll(x, (1, 1), (2, 3)), "slice": lambda x: x[:, :, ::2, ::2].contiguous(),
        "flip": lambda x: x.flip(3), "shuffle": lambda x: F.pixel_shuffle(x, 2),
    }  # fmt: skip
    return bench.scene(functions[function], bench.tensor(batch, channels - channels % 4, size, size))


@kind(
    4,
    rows=lambda d: d.among(1000, 10000, 30522, 50304, d.log(16, 200000)),
    columns=lambda d: d.width(8, 2048),
    batch=lambda d: 1,
    tokens=lambda d: d.log(1, 65536),
)
def embedding(bench: Bench, rows: int, columns: int, batch: int, tokens: int) -> Scene:
    table, tokens_in = bench.tensor(rows, columns), bench.indices(rows, min(tokens, (1 << 27) // columns))
    return bench.scene(lambda weight: F.embedding(tokens_in, weight), table)


@kind(
    3,
    rows=lambda d: d.log(16, 100000),
    columns=lambda d: d.log(1, 512),
    function=lambda d: d.among("select", "gather", "scatter_add", "index_add", "mask"),
)
def gather(bench: Bench, rows: int, columns: int, function: str) -> Scene:
    where, mask = bench.indices(rows, rows), bench.indices(2, rows, columns).bool()
    functions: dict[str, Function] = {
        "select": lambda x: x[where], "gather": lambda x: x.gather(0, where[:, None].expand(-1, columns)),
        "scatter_add": lambda x: torch.zeros_like(x).scatter_add(0, where[:, None].expand(-1, columns), x),
        "index_add": lambda x: torch.zeros_like(x).index_add(0, where, x), "mask": lambda x: x.masked_fill(mask, 0.0),
    }  # fmt: skip
    return bench.scene(functions[function], bench.tensor(rows, columns))


# -- reductions, pooling, losses ------------------------------------------------------------------------------------------

_REDUCTIONS: dict[str, Function] = {
    "sum": lambda x, dim: x.sum(dim), "mean": lambda x, dim: x.mean(dim), "largest": lambda x, dim: x.amax(dim),
    "norm": lambda x, dim: torch.linalg.vector_norm(x, dim=dim), "variance": lambda x, dim: x.var(dim),
    "argmax": lambda x, dim: x.argmax(dim), "cumulative": lambda x, dim: x.cumsum(dim), "logsumexp": lambda x, dim: x.logsumexp(dim),
}  # fmt: skip


@kind(
    5,
    rows=lambda d: d.log(1, 65536),
    columns=lambda d: d.log(1, 16384),
    along=lambda d: d.among(0, 1),
    function=lambda d: d.among(*_REDUCTIONS),
)
def reduction(bench: Bench, rows: int, columns: int, along: int, function: str) -> Scene:
    return bench.scene(lambda x: _REDUCTIONS[function](x, along), bench.tensor(rows, columns))


@kind(2, rows=_elements, function=lambda d: d.among("sum", "mean", "norm", "largest"))
def total(bench: Bench, rows: int, function: str) -> Scene:
    functions: dict[str, Function] = {
        "sum": torch.sum,
        "mean": torch.mean,
        "norm": torch.linalg.vector_norm,
        "largest": torch.max,
    }
    return bench.scene(functions[function], bench.tensor(rows))


@kind(1.5, rows=lambda d: d.log(1, 4096), columns=lambda d: d.log(2, 32768), function=lambda d: d.among("topk", "sort"))
def ranking(bench: Bench, rows: int, columns: int, function: str) -> Scene:
    count = min(5, columns)
    return bench.scene(lambda x: x.topk(count)[0] if function == "topk" else x.sort()[0], bench.tensor(rows, columns))


@kind(
    4, batch=lambda d: d.log(1, 256), channels=lambda d: d.width(8, 1024), size=Draw.size, channels_last=lambda d: d.chance(0.25),
    function=lambda d: d.among("max2", "max3", "average2", "global", "adaptive7"),
)  # fmt: skip
def pooling(bench: Bench, batch: int, channels: int, size: int, channels_last: bool, function: str) -> Scene:
    modules = {
        "max2": nn.MaxPool2d(2), "max3": nn.MaxPool2d(3, 2, 1), "average2": nn.AvgPool2d(2), "global": nn.AdaptiveAvgPool2d(1),
        "adaptive7": nn.AdaptiveAvgPool2d(7),
    }  # fmt: skip
    return bench.scene(modules[function], bench.tensor(batch, channels, size, size, channels_last=channels_last))


@kind(
    2,
    batch=lambda d: d.log(1, 64),
    channels=lambda d: d.width(8, 512),
    size=lambda d: d.log(4, 128),
    mode=lambda d: d.among("nearest", "bilinear", "bicubic"),
)
def upsample(bench: Bench, batch: int, channels: int, size: int, mode: str) -> Scene:
    return bench.scene(lambda x: F.interpolate(x, scale_factor=2, mode=mode), bench.tensor(batch, channels, size, size))


@kind(3, rows=lambda d: d.log(1, 65536), columns=lambda d: d.among(2, 10, 100, 1000, 30522, 50257))
def cross_entropy(bench: Bench, rows: int, columns: int) -> Scene:
    targets = bench.indices(columns, rows)
    return bench.scene(lambda x: F.cross_entropy(x, targets), bench.tensor(rows, columns))


# -- optimizers -----------------------------------------------------------------------------------------------------------

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1), "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4),
    "adam": lambda p: torch.optim.Adam(p), "adamw": lambda p: torch.optim.AdamW(p), "fused_adamw": lambda p: torch.optim.AdamW(p, fused=True),
    "adamw_loop": lambda p: torch.optim.AdamW(p, foreach=False), "rmsprop": lambda p: torch.optim.RMSprop(p), "adagrad": lambda p: torch.optim.Adagrad(p),
    "clip": lambda p: torch.optim.SGD(p, 0.1), "lamb_like": lambda p: torch.optim.Adamax(p), "nadam": lambda p: torch.optim.NAdam(p),
}  # fmt: skip


@kind(
    4,
    ("float32",),
    rows=lambda d: d.log(1, 400),
    columns=lambda d: d.log(64, 4_000_000),
    function=lambda d: d.among(*_OPTIMIZERS),
)
def optimizer(bench: Bench, rows: int, columns: int, function: str) -> Scene:
    """`rows` tensors, of which every second one is small as biases are."""
    columns = min(columns, (1 << 27) // rows)
    parameters = [bench.tensor(columns if number % 2 == 0 else max(columns // 256, 1)) for number in range(rows)]
    gradients = [torch.randn_like(p) for p in parameters]
    chosen = _OPTIMIZERS[function](parameters)

    def run(stage: Stage) -> None:
        stage.phase("prepare")
        stage.forget()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        stage.phase("optimizer")
        if function == "clip":
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        chosen.step()
        stage.phase("prepare")

    return run


# -- filling --------------------------------------------------------------------------------------------------------------

_FILLS: dict[str, Callable[[Any, int], torch.Tensor]] = {
    "zeros": lambda b, n: torch.zeros(n, device=b.device, dtype=b.dtype), "randn": lambda b, n: torch.randn(n, device=b.device, dtype=b.dtype),
    "rand": lambda b, n: torch.rand(n, device=b.device, dtype=b.dtype), "full": lambda b, n: torch.full((n,), 0.5, device=b.device, dtype=b.dtype),
    "arange": lambda b, n: torch.arange(n, device=b.device), "randint": lambda b, n: torch.randint(0, 9, (n,), device=b.device),
    "tril": lambda b, n: torch.tril(torch.ones(int(n**0.5), int(n**0.5), device=b.device)),
}  # fmt: skip


@kind(2, rows=_elements, function=lambda d: d.among(*_FILLS))
def fill(bench: Bench, rows: int, function: str) -> Scene:
    def run(stage: Stage) -> None:
        stage.phase("prepare")
        stage.forget()
        stage.phase("forward")
        _FILLS[function](bench, rows)
        stage.phase("prepare")

    return run


@kind(3, ("float32",), rows=_elements, direction=lambda d: d.among("h2d", "d2h"), pinned=lambda d: d.chance(0.5))
def copy(bench: Bench, rows: int, direction: str, pinned: bool) -> Scene:
    host = torch.randn(rows, pin_memory=pinned and bench.device != "cpu")
    there = bench.tensor(rows, grad=False)

    def run(stage: Stage) -> None:
        stage.phase("prepare")
        stage.forget()
        stage.phase("forward")
        if direction == "h2d":
            there.copy_(host, non_blocking=pinned)
        else:
            host.copy_(there, non_blocking=pinned)
        stage.phase("prepare")

    return run
