"""A batch as the tensors of one run, and the outputs of that run as those of its requests."""

from __future__ import annotations

from tonnage.serve.datatypes import Tensor, rows_bytes
from tonnage.serve.instance_process import Turn, TurnTensor
from tonnage.serve.queue import Batch


def tensors_of(batch: Batch) -> tuple[list[TurnTensor], tuple[str, ...]]:
    """The inputs of all requests behind each other, and the names of the outputs that they want; none: all."""
    requests = batch.requests
    first = requests[0]
    wanted = () if first.outputs is None else tuple([each.name for each in first.outputs])
    if len(requests) == 1:
        return [(each.name, each.datatype, each.shape, (each.data,)) for each in first.inputs], wanted
    return [
        (each.name, each.datatype, (batch.rows, *each.shape[1:]), [one.inputs[place].data for one in requests])
        for place, each in enumerate(first.inputs)
    ], wanted


def outputs_of(batch: Batch, turn: Turn) -> list[list[Tensor]]:
    """The outputs of each request, copied: the next turn takes their place."""
    if len(batch.requests) == 1:
        return [[Tensor(name, kind, shape, bytes(data)) for name, kind, shape, data in turn.outputs]]
    rows = [request.rows for request in batch.requests]
    found: list[list[Tensor]] = [[] for _ in rows]
    for name, kind, shape, data in turn.outputs:
        for each, count, part in zip(found, rows, rows_bytes(kind, shape, data, rows), strict=True):
            each.append(Tensor(name, kind, (count, *shape[1:]), bytes(part)))
    return found


def odd_output(batch: Batch, turn: Turn) -> str:
    """What is wrong with the outputs of a model that is said to have batches; "" where nothing is."""
    for name, _, shape, _ in turn.outputs:
        if shape[:1] != (batch.rows,):
            return f"output {name} has the shape {list(shape)} for {batch.rows} rows of inputs"
    return ""
