"""Traces at batch sizes that were not captured."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from capturing import write_script

from tonnage.api import estimate
from tonnage.errors import UsageError
from tonnage.program.capture import CaptureOptions, capture
from tonnage.program.interpolate import Family
from tonnage.program.program import parse_program
from tonnage.program.trace import Operator, Origin, Phase, TensorSpec, Trace
from tonnage.program.trace_file import dump_trace
from tonnage.program.virtual_gpu.recorder import Recorder

SCRIPT = """
    BATCH_SIZE = 4
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(10 ** 9):
        x, y = torch.randn(BATCH_SIZE, 3, 32, 32).cuda(), torch.randint(0, 5, (BATCH_SIZE,)).cuda()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


def trace_at(batch: int, size: Callable[[int], int] = lambda batch: batch * 96 * 4, extra: bool = False) -> Trace:
    """A weight and one activation whose size depends on the batch."""
    recorder = Recorder()
    result = TensorSpec((batch, 96), "float32", "strided", (96, 1))
    recorder.operators.append(Operator("aten::expand", (None, result), (result,), {"size": (batch, 96), "scale": 0.5}))
    recorder.allocate(1024, 0, Phase.SETUP)
    block = recorder.allocate(size(batch), 0, Phase.FORWARD)
    recorder.call(0, 0, Phase.FORWARD)
    if extra:
        recorder.call(0, 0, Phase.FORWARD)
    recorder.free(block)
    recorder.end_step()
    return recorder.trace(Origin(program="train.py", steps=1, batch=batch))


def family_of(size: Callable[[int], int], *batches: int) -> Family:
    family = Family.span(trace_at(batches[0], size), trace_at(batches[1], size))
    assert family is not None
    return family


def with_epoch(batch: int, steps: int) -> Trace:
    trace = trace_at(batch)
    return replace(trace, origin=replace(trace.origin, epoch_steps=steps))


@pytest.mark.parametrize(("steps", "expected"), [((100, 50), 25), ((100, 100), 100), ((0, 0), 0)])
def test_an_epoch_has_fewer_steps_at_a_larger_batch(steps: tuple[int, int], expected: int) -> None:
    family = Family.span(with_epoch(8, steps[0]), with_epoch(16, steps[1]))
    assert family is not None
    assert family.at(32).origin.epoch_steps == expected


# -- a program that scales ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 7, 8, 16, 1000, 1_000_000])
def test_a_trace_at_any_batch_equals_the_trace_made_there(batch: int) -> None:
    family = family_of(lambda n: n * 96 * 4, 2, 8)
    assert dump_trace(family.at(batch)) == dump_trace(trace_at(batch))


def test_the_order_of_the_two_captures_does_not_matter() -> None:
    assert dump_trace(family_of(lambda n: n * 40, 8, 2).at(5)) == dump_trace(trace_at(5, lambda n: n * 40))


def test_a_third_capture_proves_it() -> None:
    family = family_of(lambda n: n * 96 * 4, 2, 8)
    assert family.agrees_with(trace_at(5))
    assert not family.agrees_with(trace_at(5, lambda n: n * 96 * 4 + 512))


def test_a_fixed_part_stays_fixed() -> None:
    family = family_of(lambda n: 4096 + n * 100, 2, 8)
    assert family.at(50).block_bytes.tolist() == [1024, 4096 + 50 * 100]


def test_uneven_sizes_are_rounded_up() -> None:
    family = family_of(lambda n: (n * 3 + 1) // 2, 2, 8)
    exact = 3 + (12 - 3) * (5 - 2) / (8 - 2)
    assert family.at(5).block_bytes.tolist()[1] >= exact


# -- a program that does not ----------------------------------------------------------------------------------------------


def test_a_quadratic_size_is_found_out_by_the_third_capture() -> None:
    family = family_of(lambda n: n * n * 64, 2, 8)
    assert not family.agrees_with(trace_at(5, lambda n: n * n * 64))


def test_a_program_that_does_more_at_another_batch_is_no_family() -> None:
    assert Family.span(trace_at(2), trace_at(8, extra=True)) is None


def test_another_operator_at_another_batch_is_no_family() -> None:
    other = trace_at(8)
    renamed = replace(other, operators=(replace(other.operators[0], name="aten::repeat"),))
    assert Family.span(trace_at(2), renamed) is None


def test_one_batch_alone_is_no_family() -> None:
    assert Family.span(trace_at(2), trace_at(2)) is None


def test_without_a_known_batch_there_is_no_family() -> None:
    unknown = replace(trace_at(8), origin=replace(trace_at(8).origin, batch=None))
    assert Family.span(trace_at(2), unknown) is None
    assert not family_of(lambda n: n, 2, 8).agrees_with(unknown)


def test_other_dimensions_at_another_batch_are_no_family() -> None:
    other = trace_at(8)
    flat = replace(other.operators[0], outputs=(TensorSpec((8 * 96,), "float32"),))
    family = Family.span(trace_at(2), replace(other, operators=(flat,)))
    assert family is None or not family.agrees_with(trace_at(5))


# -- against real captures ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_interpolated_trace_equals_a_capture_at_a_third_batch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = parse_program(str(write_script(tmp_path, SCRIPT)))
    small, large, third = (capture(program, CaptureOptions(steps=2, batch=batch)) for batch in (4, 8, 6))
    family = Family.span(small, large)
    assert family is not None
    assert family.agrees_with(third)
    between = family.at(6)
    assert np.array_equal(between.block_bytes, third.block_bytes)
    assert between.operators == third.operators
    assert dump_trace(between) == dump_trace(third)


@pytest.mark.slow
def test_the_largest_batch_of_a_script_fits_and_one_more_does_not(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = write_script(tmp_path, SCRIPT)
    found = estimate(script, gpus=["T4"], steps=1, find_max_batch=True).estimates[0].max_batch
    assert found is not None
    report = estimate(script, gpus=["T4"], steps=1, batches=[found, found + 1])
    assert [other.estimates[0].fits for other in report.sweep] == [True, False]


def test_a_script_that_hides_its_batch_is_asked_to_name_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = write_script(tmp_path, SCRIPT.replace("BATCH_SIZE", "SAMPLES"))
    with pytest.raises(UsageError, match="keeps its batch size was not found") as error:
        estimate(script, gpus=["T4"], steps=1, batches=[8])
    assert "--batch-arg" in error.value.hint
