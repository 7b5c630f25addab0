"""Steps of a few calls, made by hand through a Trace."""

from collections.abc import Sequence

from traces import recorder_with

from tonnage.estimate.step import Step, last_step
from tonnage.program.trace import D2H, H2D, Operator, Origin, Phase, TensorSpec, Trace

Call = tuple[Operator, Phase]


def square(name: str, side: int, inputs: int = 2, dtype: str = "float32") -> Operator:
    matrix = TensorSpec((side, side), dtype)
    return Operator(name, (matrix,) * inputs, (matrix,))


def product(side: int, dtype: str = "float32") -> Operator:
    return square("aten::mm", side, dtype=dtype)


def relu(side: int) -> Operator:
    return square("aten::relu", side, inputs=1)


def copy_to_gpu(nbytes: int, *, pinned: bool = False, waits: bool = True) -> Operator:
    return Operator(H2D, (TensorSpec((nbytes,), "uint8"),), (), {"pinned": pinned, "waits": waits})


def copy_to_host(nbytes: int) -> Operator:
    return Operator(D2H, (TensorSpec((nbytes,), "uint8"),), (), {"pinned": False, "waits": True})


def trace_of(*steps: Sequence[Call], mode: str = "training") -> Trace:
    """One list of calls for each step."""
    operators = list(dict.fromkeys(operator for calls in steps for operator, _ in calls))
    recorder = recorder_with(*operators)
    for calls in steps:
        for operator, phase in calls:
            recorder.call(operators.index(operator), 0, phase)
        recorder.end_step()
    return recorder.trace(Origin(program="train.py", mode=mode, steps=len(steps)))


def step_with(*calls: Call) -> Step:
    return last_step(trace_of(calls))


def training_calls(side: int = 2048) -> list[Call]:
    """A copy, then products forward and backward, then an optimizer, then the loss."""
    return [
        (copy_to_gpu(8 << 20), Phase.COPY),
        (product(side), Phase.FORWARD),
        (relu(side), Phase.FORWARD),
        (product(side), Phase.BACKWARD),
        (product(side), Phase.BACKWARD),
        (relu(side), Phase.OPTIMIZER),
        (copy_to_host(4), Phase.COPY),
    ]
