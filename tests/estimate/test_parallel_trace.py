"""From a Trace to the gradients of a step, and to a time-line."""

from collections.abc import Sequence

import pytest
from traces import RELU, recorder_with, training_trace

from tonnage.errors import UsageError
from tonnage.estimate.parallel_trace import ROOT, from_trace, unit_name
from tonnage.program.trace import Category, Origin, Phase, Trace
from tonnage.units import MIB

LAYERS = ("net.layers.1", "net.layers.0", "net.head")


def trace_of(passes: int = 1, steps: int = 2, keeps_gradients: bool = False, frozen: int = 0) -> Trace:
    """A network of three modules; `passes` micro-batches in each step."""
    recorder = recorder_with(RELU)
    modules = [recorder.module(name) for name in LAYERS]
    for size in (*([MIB] * len(modules)), *([frozen] if frozen else [])):
        recorder.tag(recorder.allocate(size, 0, Phase.SETUP), Category.PARAMETERS)
    recorder.call(0, 0, Phase.SETUP)
    held: list[int] = []
    for _ in range(steps):
        for _ in range(passes):
            for module in reversed(modules):
                recorder.call(0, module, Phase.FORWARD)
            for module in modules:
                if len(held) < len(modules):
                    held.append(recorder.allocate(MIB, module, Phase.BACKWARD))
                    recorder.tag(held[-1], Category.GRADIENTS)
                recorder.call(0, module, Phase.BACKWARD)
        recorder.call(0, 0, Phase.OPTIMIZER)
        recorder.end_step()
        if not keeps_gradients:
            for block in held:
                recorder.free(block)
            held.clear()
    return recorder.trace(Origin(program="train.py", steps=steps))


def ready(trace: Trace, ends: Sequence[float]) -> list[float]:
    return [gradient.ready_seconds for gradient in from_trace(trace).timeline(ends).gradients]


def test_gradients_come_in_the_order_of_backward_with_their_modules() -> None:
    shape = from_trace(trace_of())
    assert [gradient.module for gradient in shape.gradients] == list(LAYERS)
    assert shape.gradient_bytes == shape.parameter_bytes == 3 * MIB
    assert shape.module_bytes() == dict.fromkeys(LAYERS, MIB)


def test_a_timeline_joins_gradients_and_times() -> None:
    timeline = from_trace(trace_of()).timeline([1, 2, 3, 5, 7, 9, 10])
    assert (timeline.forward_seconds, timeline.backward_seconds, timeline.optimizer_seconds) == (3, 6, 1)
    assert [gradient.ready_seconds for gradient in timeline.gradients] == [2, 4, 6]
    assert timeline.seconds == 10


def test_units_are_repeated_blocks_and_the_rest() -> None:
    timeline = from_trace(trace_of(frozen=5 * MIB)).timeline([1, 2, 3, 5, 7, 9, 10])
    assert {unit.name: unit.parameter_bytes // MIB for unit in timeline.units} == {
        ROOT: 6, "net.layers.0": 1, "net.layers.1": 1,
    }  # fmt: skip
    assert sum(unit.gradient_bytes for unit in timeline.units) == timeline.gradient_bytes
    assert sum(unit.forward_seconds for unit in timeline.units) == timeline.forward_seconds
    assert sum(unit.backward_seconds for unit in timeline.units) == timeline.backward_seconds


def test_units_stand_in_the_order_of_forward_with_the_rest_first() -> None:
    assert [unit.name for unit in from_trace(trace_of()).units()] == [ROOT, "net.layers.0", "net.layers.1"]


def test_accumulated_gradients_are_ready_in_the_last_pass() -> None:
    assert ready(trace_of(passes=2), list(range(1, 14))) == [1, 2, 3]
    assert from_trace(trace_of(passes=2)).timeline(list(range(1, 14))).forward_seconds == 9


def test_gradients_that_are_kept_are_found_in_the_step_that_made_them() -> None:
    shape = from_trace(trace_of(keeps_gradients=True))
    assert len(shape.gradients) == 3
    assert shape.first_call == 0


def test_a_program_without_gradients_has_nothing_to_exchange() -> None:
    recorder = recorder_with(RELU)
    recorder.call(0, 0, Phase.FORWARD)
    recorder.end_step()
    with pytest.raises(UsageError, match="no gradients"):
        from_trace(recorder.trace(Origin(program="x", mode="inference")))


def test_times_of_another_step_are_refused() -> None:
    with pytest.raises(UsageError, match="the step has 3 calls, not 2"):
        from_trace(training_trace()).timeline([1, 2])


@pytest.mark.parametrize(
    ("module", "unit"),
    [
        ("", ROOT),
        ("Net", ROOT),
        ("layers.0", "layers.0"),
        ("a.layers.10.norm", "a.layers.10"),
        ("blocks.1.2.up", "blocks.1"),
    ],
)
def test_a_unit_is_the_outermost_numbered_module(module: str, unit: str) -> None:
    assert unit_name(module) == unit
