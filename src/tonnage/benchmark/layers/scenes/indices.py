"""Elements in another order: transposing, looking up, gathering, ranking."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tonnage.benchmark.layers.scenes.bench import Bench, Function, Scene

_MOST_PICKED = 1 << 26  # values


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


def gather(bench: Bench, rows: int, columns: int, places: int, function: str) -> Scene:
    """`places` rows are picked out of a table, or added into one."""
    places = min(places, _MOST_PICKED // columns)
    where, mask = bench.indices(rows, places), bench.indices(2, rows, columns).bool()
    table, picked = bench.tensor(rows, columns), bench.tensor(places, columns)
    wide = where[:, None].expand(-1, columns)
    into: dict[str, Function] = {
        "scatter_add": lambda x: torch.zeros_like(table).scatter_add(0, wide, x),
        "index_add": lambda x: torch.zeros_like(table).index_add(0, where, x),
        "index_put": lambda x: torch.zeros_like(table).index_put((where,), x, accumulate=True),
    }
    out_of: dict[str, Function] = {
        "select": lambda x: x[where],
        "gather": lambda x: x.gather(0, wide),
        "mask": lambda x: x.masked_fill(mask, 0.0),
    }
    return bench.scene(into[function], picked) if function in into else bench.scene(out_of[function], table)


def ranking(bench: Bench, rows: int, columns: int, function: str) -> Scene:
    count = min(5, columns)
    return bench.scene(lambda x: x.topk(count)[0] if function == "topk" else x.sort()[0], bench.tensor(rows, columns))


MAKERS = (transpose, embedding, gather, ranking)
