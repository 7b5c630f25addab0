"""Elements in another order: transposing, looking up, gathering, ranking."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tonnage.benchmark.layers.scenes.bench import Bench, Function, Scene


def transpose(bench: Bench, batch: int, rows: int, columns: int, order: str) -> Scene:
    heads = max(count for count in (1, 2, 4, 8, 16) if columns % count == 0)
    orders: dict[str, Function] = {
        "swap": lambda x: x.transpose(1, 2).contiguous(),
        "last": lambda x: x.permute(2, 0, 1).contiguous(),
        "heads": lambda x: x.view(batch, rows, heads, columns // heads).transpose(1, 2).contiguous(),
    }
    return bench.scene(orders[order], bench.tensor(batch, rows, columns))


def embedding(bench: Bench, rows: int, columns: int, tokens: int) -> Scene:
    wanted = bench.indices(rows, tokens)
    return bench.scene(lambda weight: F.embedding(wanted, weight), bench.tensor(rows, columns))


def gather(bench: Bench, rows: int, columns: int, function: str) -> Scene:
    places, mask = bench.indices(rows, rows), bench.indices(2, rows, columns).bool()

    def in_columns(tensor: Tensor) -> Tensor:
        return tensor[:, None].expand(-1, columns)

    functions: dict[str, Function] = {
        "select": lambda x: x[places],
        "gather": lambda x: x.gather(0, in_columns(places)),
        "scatter_add": lambda x: torch.zeros_like(x).scatter_add(0, in_columns(places), x),
        "index_add": lambda x: torch.zeros_like(x).index_add(0, places, x),
        "mask": lambda x: x.masked_fill(mask, 0.0),
    }
    return bench.scene(functions[function], bench.tensor(rows, columns))


def ranking(bench: Bench, rows: int, columns: int, function: str) -> Scene:
    count = min(5, columns)
    return bench.scene(lambda x: x.topk(count)[0] if function == "topk" else x.sort()[0], bench.tensor(rows, columns))


MAKERS = (transpose, embedding, gather, ranking)
