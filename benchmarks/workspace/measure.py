"""Measures, on a real GPU, the memory that operators take for themselves while they run.

Run on a machine with a GPU: `python benchmarks/workspace/measure.py --out DIR [--seconds 200]`. Writes one JSON line per
call to DIR/workspace.jsonl.gz: operator, shapes, dtypes, layout, arguments and the bytes that were allocated inside the
operator beyond what it returned. `src/tonnage/estimate/workspace.py` is fitted to these rows.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import torch

aten = torch.ops.aten
MIB = 1 << 20
HALVES = (torch.float16, torch.bfloat16)


def stats() -> tuple[int, int]:
    allocated = torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"]
    return allocated["current"], allocated["peak"]


def measure(call: Callable[[], Any]) -> dict[str, int]:
    """Bytes inside the call beyond what is alive before or after it, and what it left behind."""
    before, _ = stats()
    torch._C._cuda_resetPeakMemoryStats(0)
    result = call()
    after, peak = stats()
    del result
    left, _ = stats()
    return {
        "temporary": peak - max(before, after),
        "peak": peak - before,
        "outputs": after - left,
        "kept": left - before,
    }


def describe(tensor: torch.Tensor | None) -> Any:
    if tensor is None:
        return None
    layout = "contiguous" if tensor.is_contiguous() else "strided"
    if tensor.dim() == 4 and layout == "strided" and tensor.is_contiguous(memory_format=torch.channels_last):
        layout = "channels_last"
    if tensor.dim() == 5 and layout == "strided" and tensor.is_contiguous(memory_format=torch.channels_last_3d):
        layout = "channels_last"
    return [list(tensor.shape), str(tensor.dtype).removeprefix("torch."), layout]


class Log:
    def __init__(self, path: Path) -> None:
        self.file = gzip.open(path, "wt")  # noqa: SIM115  (open as long as the measurement runs)
        self.count = 0

    def row(self, **fields: Any) -> None:
        self.file.write(json.dumps(fields) + "\n")
        self.count += 1
        if self.count % 500 == 0:
            self.file.flush()


def convolution_shapes(rng: random.Random, classic: bool) -> Iterator[dict[str, Any]]:
    """Realistic convolutions first (classic networks), then random ones of one, two and three dimensions."""
    common = [
        (3, 64, 7, 2, 224, 1), (64, 64, 1, 1, 56, 1), (64, 64, 3, 1, 56, 1), (64, 256, 1, 1, 56, 1), (256, 64, 1, 1, 56, 1),
        (256, 128, 1, 1, 56, 1), (128, 128, 3, 2, 56, 1), (256, 512, 1, 2, 56, 1), (128, 128, 3, 1, 28, 1),
        (512, 1024, 1, 2, 28, 1), (256, 256, 3, 1, 14, 1), (512, 512, 3, 1, 7, 1), (2048, 512, 1, 1, 7, 1),
        (3, 32, 3, 2, 224, 1), (32, 32, 3, 1, 112, 32), (96, 96, 3, 2, 112, 96), (144, 144, 3, 1, 56, 144),
        (16, 96, 1, 1, 112, 1), (3, 768, 16, 16, 224, 1), (96, 96, 7, 1, 56, 96), (64, 64, 3, 1, 224, 1),
        (128, 64, 3, 1, 256, 1), (3, 64, 3, 1, 32, 1), (256, 256, 3, 1, 32, 32), (128, 256, 5, 1, 27, 2),
        (192, 48, 1, 1, 28, 1), (1, 32, 3, 1, 28, 1), (512, 3, 1, 1, 64, 1), (64, 128, 4, 2, 64, 1),
    ]  # fmt: skip
    for (cin, cout, k, stride, size, groups), batch in itertools.product(common if classic else (), (2, 32, 128)):
        yield {
            "dims": 2,
            "n": batch,
            "cin": cin,
            "cout": cout,
            "k": k,
            "stride": stride,
            "size": size,
            "groups": groups,
        }
    while True:
        yield realistic_shape(rng) if rng.random() < 0.7 else random_shape(rng)


def realistic_shape(rng: random.Random) -> dict[str, Any]:
    """A layer as networks have them: the smaller the image, the more channels and the larger the batch."""
    size = rng.choice((4, 7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224, 256))
    base = rng.choice((16, 24, 32, 40, 48, 64, 64, 64, 80, 96, 128))
    cin = min(base * rng.choice((1, 2, 4, 8, 16)), 2048)
    cout = rng.choice((cin, cin, 2 * cin, max(cin // 2, 8), 4 * cin, max(cin // 4, 8)))
    if rng.random() < 0.12:
        cin = rng.choice((1, 3, 3, 3, 4))
    elif rng.random() < 0.06:
        cout = rng.choice((1, 2, 3, 10, 21))
    k, stride = rng.choice(
        ((1, 1), (1, 1), (3, 1), (3, 1), (3, 1), (3, 1), (3, 2), (4, 2), (1, 2), (2, 2), (5, 1), (7, 1), (7, 2))
    )
    most = max((1 << 27) // (size * size * max(cin, cout)), 1)
    batch = min(rng.choice((2, 4, 8, 16, 32, 48, 64, 96, 128, 256, 512)), most)
    kind = rng.random()
    groups = cin if kind < 0.12 else rng.choice((2, 4, 8, 32)) if kind < 0.18 else 1
    if groups > 1:
        cout = cin
        groups = groups if cin % groups == 0 else 1
    return {
        "dims": 2, "n": batch, "cin": cin, "cout": cout, "k": k, "stride": stride, "size": size, "groups": groups,
        "transposed": groups == 1 and k in (2, 3, 4) and stride == 2 and rng.random() < 0.5,
    }  # fmt: skip


def random_shape(rng: random.Random) -> dict[str, Any]:
    dims = rng.choice((1, 2, 2, 2, 3))
    cin, cout = (rng.choice((1, 3, 4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 320, 512, 640)) for _ in "ab")
    groups = rng.choice((1, 1, 1, 1, 2, 4, 0))
    if groups == 0 or cin % groups or cout % groups:
        cout = cin
        groups = cin if groups == 0 else 1
    size = rng.choice(
        {1: (64, 250, 1000, 4000, 16000), 2: (7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224), 3: (8, 16, 28, 32)}[dims]
    )
    return {
        "dims": dims, "n": rng.choice((1, 4, 8, 16, 32, 64)), "cin": cin, "cout": cout, "k": rng.choice((1, 2, 3, 3, 3, 4, 5, 7)),
        "stride": rng.choice((1, 1, 1, 2)), "size": size, "groups": groups, "dilation": rng.choice((1, 1, 1, 1, 2, 4)),
        "transposed": groups == 1 and rng.random() < 0.15,
    }  # fmt: skip


def convolutions(log: Log, seconds: float, rng: random.Random, classic: bool) -> None:
    end = time.monotonic() + seconds
    for shape in convolution_shapes(rng, classic):
        if time.monotonic() > end:
            return
        for dtype, channels_last in (
            (torch.float32, False), (torch.float32, True), (torch.bfloat16, False), (torch.float16, True),
            (torch.float16, False), (torch.bfloat16, True),
        ):  # fmt: skip
            try:
                convolution(log, shape, dtype, channels_last)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
            except RuntimeError:
                break


def convolution(log: Log, shape: dict[str, Any], dtype: torch.dtype, channels_last: bool) -> None:
    dims, transposed = shape["dims"], shape.get("transposed", False)
    if (
        shape["n"] * shape["cin"] * shape["size"] ** dims > 2**28
        or shape["n"] * shape["cout"] * shape["size"] ** dims > 2**28
    ):
        return
    padding = [shape["k"] // 2 * shape.get("dilation", 1)] * dims
    weight_shape = (
        (shape["cin"], shape["cout"] // shape["groups"])
        if transposed
        else (shape["cout"], shape["cin"] // shape["groups"])
    )
    x = torch.randn(shape["n"], shape["cin"], *[shape["size"]] * dims, device="cuda", dtype=dtype)
    weight = torch.randn(*weight_shape, *[shape["k"]] * dims, device="cuda", dtype=dtype)
    if channels_last:
        if dims == 1:
            return
        layout = torch.channels_last if dims == 2 else torch.channels_last_3d
        x, weight = x.to(memory_format=layout), weight.to(memory_format=layout)
    settings = [
        [shape["stride"]] * dims,
        padding,
        [shape.get("dilation", 1)] * dims,
        transposed,
        [0] * dims,
        shape["groups"],
    ]
    forward = measure(lambda: aten.convolution(x, weight, None, *settings))
    out = aten.convolution(x, weight, None, *settings)
    common = {
        "benchmark": torch.backends.cudnn.benchmark,
        "input": describe(x),
        "weight": describe(weight),
        "settings": settings,
        "output": describe(out),
    }
    log.row(op="convolution", **common, **forward)
    gradient = torch.randn_like(out)
    for mask in ([True, True, False], [True, False, False], [False, True, False]):
        row = measure(lambda mask=mask: aten.convolution_backward(gradient, x, weight, None, *settings, mask))
        log.row(op="convolution_backward", mask=mask, **common, **row)


def matrix_products(log: Log) -> None:
    """When cuBLAS takes its workspaces, and how large they are: kept bytes of the very first products of a process."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        for m, n, k in (
            (64, 64, 64),
            (1024, 1024, 1024),
            (8, 50257, 768),
            (4096, 4096, 4096),
            (1, 4096, 4096),
            (5000, 3, 700),
        ):
            a, b = torch.randn(m, k, device="cuda", dtype=dtype), torch.randn(k, n, device="cuda", dtype=dtype)
            bias = torch.randn(n, device="cuda", dtype=dtype)
            log.row(op="mm", input=describe(a), weight=describe(b), **measure(lambda a=a, b=b: aten.mm(a, b)))
            row = measure(lambda a=a, b=b, bias=bias: aten.addmm(bias, a, b))
            log.row(op="addmm", input=describe(a), weight=describe(b), **row)
            x, y = (
                torch.randn(16, m % 512 + 1, 64, device="cuda", dtype=dtype),
                torch.randn(16, 64, 96, device="cuda", dtype=dtype),
            )
            log.row(op="bmm", input=describe(x), weight=describe(y), **measure(lambda x=x, y=y: aten.bmm(x, y)))
    x = torch.randn(512, 512, device="cuda", requires_grad=True)
    loss = (x @ x).sum()
    log.row(op="backward thread", **measure(lambda: loss.backward()))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        a = torch.randn(512, 512, device="cuda")
        log.row(op="mm on a second stream", **measure(lambda: a @ a))


def benchmark_mode(log: Log, seconds: float, rng: random.Random) -> None:
    """The first call of each shape with `cudnn.benchmark = True`, which tries every algorithm."""
    torch.backends.cudnn.benchmark = True
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        shape = realistic_shape(rng)
        for dtype, channels_last in ((torch.float32, False), (torch.float16, False), (torch.float16, True)):
            try:
                convolution(log, shape, dtype, channels_last)
            except RuntimeError:
                break
    torch.backends.cudnn.benchmark = False


def more_recurrent(log: Log) -> None:
    """Hidden sizes between and beyond, projections, no biases, bfloat16, packed input."""
    for kind, hidden, dtype, variant in itertools.product(
        ("LSTM", "GRU"),
        (64, 192, 256, 384, 512, 1024),
        (torch.float32, torch.bfloat16),
        ("plain", "packed", "nobias", "both"),
    ):
        both = variant == "both"
        module = getattr(torch.nn, kind)(256, hidden, 2, bidirectional=both, bias=variant != "nobias").cuda().to(dtype)
        x = torch.randn(64, 48, 256, device="cuda", dtype=dtype, requires_grad=True)
        weights = sum(p.numel() * p.element_size() for p in module.parameters())
        lengths = torch.linspace(64, 8, 48).long()
        value = torch.nn.utils.rnn.pack_padded_sequence(x, lengths) if variant == "packed" else x
        rows: list[tuple[str, Any, dict[str, int]]] = []
        with Watch(rows):
            out = module(value)[0]
            (out.data if variant == "packed" else out).sum().backward()
        for name, shapes, row in rows:
            if "rnn" in name:
                settings = [kind, 2, hidden, 256, 48, 64, both, 0.0]
                log.row(op=name, rnn=settings, variant=variant, weights=weights, dtype=str(dtype), shapes=shapes, **row)


def recurrent(log: Log) -> None:
    for kind, layers, hidden, inputs, batch, length, both, dtype, dropout in itertools.product(
        ("LSTM", "GRU", "RNN"), (1, 2, 4), (128, 650), (96, 512), (8, 64), (30, 200), (False, True),
        (torch.float32, torch.float16), (0.0, 0.3),
    ):  # fmt: skip
        if (layers == 1 and dropout) or (kind == "RNN" and (layers == 4 or length == 200)) or (layers == 4 and both):
            continue
        module = getattr(torch.nn, kind)(inputs, hidden, layers, bidirectional=both, dropout=dropout).cuda().to(dtype)
        x = torch.randn(length, batch, inputs, device="cuda", dtype=dtype, requires_grad=True)
        weights = sum(p.numel() * p.element_size() for p in module.parameters())
        settings = [kind, layers, hidden, inputs, batch, length, both, dropout]
        rows: list[tuple[str, Any, dict[str, int]]] = []
        with Watch(rows):
            out = module(x)[0]
            out.sum().backward()
            module.eval()
            with torch.no_grad():
                module(x)
        for name, shapes, row in rows:
            if "rnn" in name:
                log.row(op=name, rnn=settings, weights=weights, dtype=str(dtype), shapes=shapes, **row)
        del module, x, out


class Watch(torch.utils._python_dispatch.TorchDispatchMode):
    """Measures each operator of a region; backward runs in another thread, whose operators come through here as well."""

    def __init__(self, rows: list[tuple[str, Any, dict[str, int]]]) -> None:
        super().__init__()
        self.rows = rows

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        before, _ = stats()
        torch._C._cuda_resetPeakMemoryStats(0)
        result = func(*args, **(kwargs or {}))
        after, peak = stats()
        outputs = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.is_cuda]
        shapes = [[describe(t), t.untyped_storage().nbytes()] for t in outputs]
        self.rows.append(
            (
                str(func),
                shapes,
                {"temporary": peak - max(before, after), "peak": peak - before, "outputs": after - before},
            )
        )
        return result


def attention(log: Log, seconds: float, rng: random.Random) -> None:
    """Which kernel `scaled_dot_product_attention` takes, and what its forward and backward need."""
    end = time.monotonic() + seconds
    cases = list(itertools.product(
        (torch.float32, torch.bfloat16, torch.float16), (32, 40, 64, 80, 128, 200), (77, 197, 512, 1024),
        ("none", "bool", "float", "broadcast"), (False, True), (0.0, 0.1), (True, False),
    ))  # fmt: skip
    rng.shuffle(cases)  # cuDNN takes a second to plan each new shape: as many as time allows
    for dtype, head, length, mask, causal, dropout, gradient in cases:
        if time.monotonic() > end:
            return
        if (mask != "none" and causal) or (head in (40, 200) and length in (77, 1024)) or (dropout and not gradient):
            continue
        q, k, v = (
            torch.randn(8, length, 8, head, device="cuda", dtype=dtype).transpose(1, 2).requires_grad_(gradient)
            for _ in "qkv"
        )
        bias = None
        if mask == "bool":
            bias = torch.ones(8, 1, length, length, device="cuda", dtype=torch.bool)
        elif mask == "float":
            bias = torch.zeros(8, 8, length, length, device="cuda", dtype=dtype)
        elif mask == "broadcast":
            bias = torch.zeros(8, 1, 1, length, device="cuda", dtype=dtype)
        rows: list[tuple[str, Any, dict[str, int]]] = []
        with Watch(rows), torch.set_grad_enabled(gradient):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, dropout_p=dropout, is_causal=causal)
            if gradient:
                out.sum().backward()
        for name, shapes, row in rows:
            log.row(
                op=name,
                attention=[8, 8, length, head, mask, causal, dropout, gradient],
                dtype=str(dtype),
                shapes=shapes,
                **row,
            )


def various(log: Log) -> None:
    """Sorting, scanning, scattering, reducing: operators with temporaries of their own."""
    for count in (1000, 100_000, 3_000_000):
        ids = torch.randint(0, 5000, (count,), device="cuda")
        values = torch.randn(count, device="cuda")
        wide = torch.randn(count // 50, 64, device="cuda")
        rows_ids = torch.randint(0, count // 100 + 1, (count // 50,), device="cuda")
        target = torch.zeros(count // 100 + 1, 64, device="cuda")
        gradient = torch.randn(count // 50, 64, device="cuda")
        mask = values > 0
        logits = torch.randn(count // 500 + 1, 5000, device="cuda")
        labels = torch.randint(0, 5000, (count // 500 + 1,), device="cuda")
        calls: dict[str, Callable[[], Any]] = {
            "sort": lambda: values.sort(), "sort int": lambda: ids.sort(), "argsort wide": lambda: wide.argsort(1),
            "topk": lambda: logits.topk(10), "topk all": lambda: values.topk(100), "cumsum": lambda: values.cumsum(0),
            "cumsum wide": lambda: wide.cumsum(0), "cumsum int": lambda: ids.cumsum(0), "nonzero": lambda: mask.nonzero(),
            "masked_select": lambda: values[mask], "unique": lambda: ids.unique(), "unique inverse": lambda: torch.unique(ids, return_inverse=True),
            "bincount": lambda: ids.bincount(), "embedding backward": lambda: aten.embedding_dense_backward(gradient, rows_ids, target.size(0), -1, False),
            "index_put accumulate": lambda: target.index_put((rows_ids,), gradient, accumulate=True),
            "index": lambda: target[rows_ids], "index_add": lambda: target.index_add(0, rows_ids, gradient),
            "scatter_add": lambda: target.scatter_add(0, rows_ids[:, None].expand(-1, 64), gradient),
            "scatter_reduce": lambda: target.scatter_reduce(0, rows_ids[:, None].expand(-1, 64), gradient, "amax"),
            "gather": lambda: target.gather(0, rows_ids[:, None].expand(-1, 64)), "median": lambda: values.median(), "kthvalue": lambda: values.kthvalue(5),
            "log_softmax": lambda: logits.log_softmax(1), "cross_entropy": lambda: torch.nn.functional.cross_entropy(logits, labels),
            "sum": lambda: values.sum(), "sum wide": lambda: wide.sum(0), "mean half": lambda: wide.half().mean(0), "var": lambda: wide.var(0),
            "norm": lambda: values.norm(), "max": lambda: values.max(), "argmax": lambda: logits.argmax(1), "any": lambda: mask.any(),
            "logsumexp": lambda: logits.logsumexp(1), "cdist": lambda: torch.cdist(wide[:500], wide[:500]), "randperm": lambda: torch.randperm(count, device="cuda"),
            "multinomial": lambda: torch.multinomial(logits.softmax(1), 1), "repeat_interleave": lambda: torch.repeat_interleave(values[:1000], ids[:1000] % 5),
            "flip": lambda: wide.flip(0), "roll": lambda: wide.roll(3, 0), "fft": lambda: torch.fft.rfft(wide), "where": lambda: torch.where(mask, values, 0.0),
            "searchsorted": lambda: torch.searchsorted(values.sort()[0], values), "histc": lambda: values.histc(50),
            "cumprod": lambda: values.cumprod(0), "logcumsumexp": lambda: values.logcumsumexp(0), "mode": lambda: ids[:1000].mode(), "isin": lambda: torch.isin(ids[:1000], ids[:100]),
            "foreach norm": lambda: torch._foreach_norm([wide, values]), "renorm": lambda: wide.renorm(2, 0, 1.0), "pixel": lambda: wide.view(-1, 64, 1, 1).expand(-1, -1, 2, 2).contiguous(),
        }  # fmt: skip
        for name, call in calls.items():
            rows: list[tuple[str, Any, dict[str, int]]] = []
            try:
                with Watch(rows):
                    call()
            except RuntimeError as error:
                log.row(op=name, error=str(error)[:200])
            for operator, shapes, row in rows:
                log.row(op=operator, case=name, count=count, shapes=shapes, **row)


def normalisations(log: Log) -> None:
    for dtype, rows_count, width in itertools.product(
        (torch.float32, torch.bfloat16), (64, 4096, 65536), (64, 768, 4096)
    ):
        x = torch.randn(rows_count, width, device="cuda", dtype=dtype, requires_grad=True)
        image = torch.randn(
            max(rows_count // 256, 1), 64, 16, max(width // 64, 1), device="cuda", dtype=dtype, requires_grad=True
        )
        calls: dict[str, Callable[[], Any]] = {
            "layer_norm": lambda: torch.nn.LayerNorm(width, device="cuda", dtype=dtype)(x), "rms_norm": lambda: torch.nn.RMSNorm(width, device="cuda", dtype=dtype)(x),
            "group_norm": lambda: torch.nn.GroupNorm(8, 64, device="cuda", dtype=dtype)(image), "batch_norm": lambda: torch.nn.BatchNorm2d(64, device="cuda", dtype=dtype)(image),
            "batch_norm_1d": lambda: torch.nn.BatchNorm1d(width, device="cuda", dtype=dtype)(x), "batch_norm_nhwc": lambda: torch.nn.BatchNorm2d(64, device="cuda", dtype=dtype)(image.to(memory_format=torch.channels_last)),
            "instance_norm": lambda: torch.nn.InstanceNorm2d(64, device="cuda", dtype=dtype)(image), "softmax": lambda: x.softmax(1), "gelu": lambda: torch.nn.functional.gelu(x),
            "bilinear": lambda: torch.nn.functional.interpolate(image, scale_factor=2, mode="bilinear"), "max_pool": lambda: torch.nn.functional.max_pool2d(image, 2) if image.size(3) > 1 else image,
            "prelu": lambda: torch.nn.PReLU(device="cuda", dtype=dtype)(x), "dropout": lambda: torch.nn.functional.dropout(x, 0.1),
        }  # fmt: skip
        for name, call in calls.items():
            rows: list[tuple[str, Any, dict[str, int]]] = []
            with Watch(rows):
                call().sum().backward()
            for operator, shapes, row in rows:
                log.row(op=operator, case=name, rows=rows_count, width=width, dtype=str(dtype), shapes=shapes, **row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seconds", type=float, default=120.0, help="time for the convolutions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", default="", help="names separated by commas; all by default")
    options = parser.parse_args()
    log = Log(options.out / "workspace.jsonl.gz")
    free, total = torch.cuda.mem_get_info()
    log.row(
        op="machine", gpu=torch.cuda.get_device_name(), torch=torch.__version__, cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version(), date=date.today().isoformat(), total=total, context=total - free,
    )  # fmt: skip
    rng = random.Random(options.seed)
    parts: dict[str, Callable[[], None]] = {
        "matrix_products": lambda: matrix_products(log),
        "various": lambda: various(log),
        "normalisations": lambda: normalisations(log),
        "convolutions": lambda: convolutions(log, options.seconds, rng, options.seed == 0),
        "attention": lambda: attention(log, options.seconds / 3, rng),
        "recurrent": lambda: recurrent(log),
        "more_recurrent": lambda: more_recurrent(log),
        "benchmark": lambda: benchmark_mode(log, options.seconds / 3, rng),
    }
    for name, part in parts.items():
        if options.parts and name not in options.parts.split(","):
            continue
        begin = time.monotonic()
        part()
        torch.cuda.empty_cache()
        print(name, f"{time.monotonic() - begin:.1f} s", log.count, "rows", flush=True)
    log.file.close()
    print(log.count, "rows")


if __name__ == "__main__":
    main()
