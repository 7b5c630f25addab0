"""Traces of a GPU, as Kineto writes them: who had the device when."""

from pathlib import Path

import pytest
from kineto import ENGINE, KinetoTrace, training_trace

from tonnage.errors import InvalidFile
from tonnage.profile import timeline
from tonnage.profile.build import report_of_trace
from tonnage.profile.report import PARTS, TracedStep
from tonnage.profile.trace_analysis import TraceAnalysis, analyse
from tonnage.profile.trace_columns import TraceColumns
from tonnage.profile.trace_names import copy_kind


@pytest.fixture(autouse=True)
def no_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels begin at once here, except where a trace shows otherwise."""
    monkeypatch.setattr(timeline, "USUAL_LEAD", 0.0)


def read(trace: KinetoTrace, skip: int = 0) -> TraceAnalysis:
    return TraceAnalysis(TraceColumns().read(trace.events), skip)


def microseconds(step: TracedStep, name: str) -> float:
    return pytest.approx(getattr(step, f"{name}_seconds") * 1e6, abs=0.01)  # type: ignore[no-any-return]


def test_parts_of_a_step_are_those_of_its_kernels() -> None:
    step = read(training_trace()).steps[1]
    assert microseconds(step, "forward") == 300
    assert microseconds(step, "backward") == 400
    assert microseconds(step, "optimizer") == 100
    assert microseconds(step, "h2d") == 50
    assert microseconds(step, "d2h") == 10


def test_parts_add_up_to_the_step() -> None:
    for step in read(training_trace(5)).steps:
        assert sum(getattr(step, f"{part}_seconds") for part in PARTS) == pytest.approx(step.step_seconds)


def test_waiting_for_data_is_no_idle_time() -> None:
    step = read(training_trace()).steps[1]
    # The device is done 5 us before the host's step ends, and so its step begins as early.
    assert microseconds(step, "step") == 1000
    assert microseconds(step, "data_wait") == 80
    assert microseconds(step, "idle") == 1000 - 300 - 400 - 100 - 50 - 10 - 80


def test_a_wait_during_which_the_device_works_is_hidden() -> None:
    trace = KinetoTrace()
    for number in range(2):
        at = number * 1000.0
        trace.mark(f"ProfilerStep#{number}", at, 1000)
        trace.launch("gemm", at + 10, at + 20, 600)
        trace.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 100, 700)
        trace.launch("end", at + 950, at + 960, 40)
    step = read(trace).steps[1]
    assert microseconds(step, "data_wait") == 180
    assert microseconds(step, "loader") == 700


def test_a_copy_behind_a_kernel_costs_nothing_but_has_its_bandwidth() -> None:
    trace = KinetoTrace()
    trace.mark("ProfilerStep#0", 0, 1000)
    trace.launch("gemm", 1, 10, 900)
    trace.launch("Memcpy HtoD (Pinned -> Device)", 5, 800, 150, bytes=15_000)
    found = read(trace).steps[0]
    assert microseconds(found, "h2d") == 40
    assert microseconds(found, "h2d_busy") == 150
    assert microseconds(found, "forward") == 900


def test_two_streams_at_once_are_counted_once() -> None:
    trace = KinetoTrace()
    trace.mark("ProfilerStep#0", 0, 1000)
    trace.launch("one", 1, 100, 400)
    trace.operator("autograd::engine::evaluate_function: Two", 2, 10, ENGINE)
    trace.launch("two", 3, 300, 400, ENGINE)
    step = read(trace).steps[0]
    assert microseconds(step, "forward") == 400
    assert microseconds(step, "backward") == 200


def test_a_kernel_in_the_queue_needs_a_moment_to_begin() -> None:
    trace = KinetoTrace()
    trace.mark("ProfilerStep#0", 0, 1000)
    for number in range(30):
        trace.launch("small", 10 + number, 100 + number * 4, 3)  # a gap of 1 us in front of each
    trace.launch("alone", 500, 510, 3)
    step = read(trace).steps[0]
    assert microseconds(step, "forward") == 31 * 4
    assert microseconds(step, "idle") == 513 - 31 * 4


def test_a_step_that_begins_inside_an_optimizer_does_not_belong_to_it() -> None:
    trace = KinetoTrace()
    for number in range(3):
        at = number * 1000.0
        trace.mark(f"ProfilerStep#{number}", at, 1000)
        trace.operator("aten::addmm", at + 160, 20)
        trace.launch("gemm", at + 165, at + 170, 300)
        trace.mark("Optimizer.step#SGD.step", at + 900, 150)  # its hook ends the step, and it goes on
        trace.operator("aten::_foreach_add_", at + 910, 30)
        trace.launch("foreach", at + 915, at + 930, 50)
    for step in read(trace).steps[1:]:
        assert (microseconds(step, "forward"), microseconds(step, "optimizer")) == (300, 50)


def test_kernels_belong_to_the_step_that_launched_them() -> None:
    trace = KinetoTrace()
    for number in range(4):  # the device lags behind by more than a step
        trace.mark(f"ProfilerStep#{number}", number * 100.0, 100)
        trace.launch("gemm", number * 100.0 + 1, 50 + number * 300.0, 300)
    steps = read(trace, skip=2).steps
    assert [round(step.step_seconds * 1e6) for step in steps] == [300, 300]
    assert [round(step.forward_seconds * 1e6) for step in steps] == [300, 300]


def test_backward_is_known_by_its_arrow_alone() -> None:
    trace = KinetoTrace()
    trace.mark("ProfilerStep#0", 0, 1000)
    trace.mark("nn.Module: Net", 5, 50)
    trace.operator("aten::conv", 10, 20)
    trace.launch("forward_kernel", 12, 20, 100)
    trace.operator("ConvBackward", 300, 20, ENGINE)
    trace.arrow(10, 300)
    trace.launch("backward_kernel", 305, 400, 200, ENGINE)
    analysis = read(trace)
    assert microseconds(analysis.steps[0], "backward") == 200
    assert {row.name: round(row.device_seconds * 1e6) for row in analysis.tables.modules} == {"Net": 300}


def test_modules_get_their_forward_and_backward() -> None:
    rows = {row.name: row for row in read(training_trace()).tables.modules}
    assert rows["Net.body"].device_seconds * 1e6 == pytest.approx(700)
    assert rows["Net.body"].calls == 1


def test_operators_get_the_kernels_that_they_launch() -> None:
    rows = {row.name: row for row in read(training_trace()).tables.operators}
    assert rows["aten::addmm"].device_seconds * 1e6 == pytest.approx(300)
    assert rows["AddmmBackward0"].device_seconds * 1e6 == pytest.approx(400)
    assert rows["aten::addmm"].calls == 1


def test_stacks_lead_from_the_phase_to_the_kernel() -> None:
    stacks = {stack.frames: stack.seconds for stack in read(training_trace()).tables.stacks}
    assert stacks["forward", "Net", "body", "aten::addmm", "gemm"] == pytest.approx(300e-6)
    assert stacks["backward", "Net", "body", "AddmmBackward0", "gemm_backward"] == pytest.approx(400e-6)
    assert stacks["optimizer", "Optimizer.step#SGD.step", "aten::_foreach_add_", "foreach"] == pytest.approx(100e-6)


def test_without_marks_an_optimizer_ends_the_steps() -> None:
    trace = training_trace(4)
    trace.events = [event for event in trace.events if not event["name"].startswith("ProfilerStep")]
    assert len(read(trace).steps) == 4


def test_without_an_optimizer_the_outermost_module_ends_the_steps() -> None:
    trace = training_trace(4)
    gone = ("ProfilerStep", "Optimizer.")
    trace.events = [event for event in trace.events if not event["name"].startswith(gone)]
    assert len(read(trace).steps) == 4


def test_a_trace_without_steps_is_one(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.launch("gemm", 0, 10, 90)
    report = report_of_trace(trace.write(tmp_path / "t.json"))
    assert report.indicators.steps == 1
    assert "no steps were found" in report.notes[0]
    assert "slows the host down" in report.notes[1]


def test_steps_that_were_guessed_are_called_so(tmp_path: Path) -> None:
    trace = KinetoTrace()
    for number in range(2):
        trace.mark("Optimizer.step#Adam.step", number * 500, 100)
        trace.launch("gemm", number * 500 + 10, number * 500 + 20, 50)
    report = report_of_trace(trace.write(tmp_path / "t.json"))
    assert "not marked in the trace" in report.notes[0]


@pytest.mark.parametrize("value", ["1e999", "-1e999", "NaN", "1" + "0" * 30, '"a"', "[1]", "null"])
@pytest.mark.parametrize("field", ["ts", "dur", "correlation", "bytes", "device", "tid"])
def test_numbers_that_cannot_be_are_passed_over(tmp_path: Path, field: str, value: str) -> None:
    fields = {"ts": "5", "dur": "5", "correlation": "1", "bytes": "1", "device": "0", "tid": "7"} | {field: value}
    damaged = (
        '{{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 0, "tid": {tid}, "ts": {ts}, '
        '"dur": {dur}, "args": {{"correlation": {correlation}, "bytes": {bytes}, "device": {device}}}}}'
    ).format(**fields)
    trace = training_trace().write(tmp_path / "t.json")
    trace.write_text(trace.read_text().replace('"traceEvents": [', f'"traceEvents": [{damaged},'))
    assert report_of_trace(trace).indicators.backward_seconds == pytest.approx(400e-6)


def test_a_trace_that_is_nested_without_end_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + "[" * 200_000)
    with pytest.raises(InvalidFile, match=r"nested without end|cut off|damaged"):
        report_of_trace(path)


def test_indicators_of_a_trace(tmp_path: Path) -> None:
    found = report_of_trace(training_trace(4).write(tmp_path / "trace.json.gz")).indicators
    assert (found.device, found.steps, found.basis) == ("cuda", 4, "measured")
    assert (found.h2d_bytes, found.d2h_bytes) == (1_000_000, 4)
    assert found.h2d_bytes_second == pytest.approx(1e6 / 50e-6)
    assert found.pinned_share == pytest.approx(1, abs=1e-3)
    assert found.gpu_utilisation == pytest.approx(0.86, abs=0.03)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Memcpy HtoD (Pageable -> Device)", ("H2D", False)),
        ("Memcpy HtoD (Pinned -> Device)", ("H2D", True)),
        ("Memcpy DtoH (Device -> Pinned)", ("D2H", True)),
        ("Memcpy DtoH (Device -> Pageable)", ("D2H", False)),
        ("Memcpy DtoD (Device -> Device)", ("", False)),
        ("Memset (Device)", ("", False)),
        ("void gemm(Pinned)", ("", False)),
    ],
)
def test_copies_are_known_by_their_names(name: str, expected: tuple[str, bool]) -> None:
    assert copy_kind(name) == expected


def test_a_kernel_that_nobody_launched_still_counts() -> None:
    trace = KinetoTrace()
    trace.mark("ProfilerStep#0", 0, 100)
    trace.span("kernel", "graph_kernel", 10, 50, 7, correlation=99, device=0)
    assert microseconds(read(trace).steps[0], "forward") == 50


def test_the_busiest_device_is_looked_at(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.mark("ProfilerStep#0", 0, 100)
    trace.span("kernel", "small", 10, 5, 7, correlation=1, device=0)
    trace.span("kernel", "large", 10, 50, 7, correlation=2, device=1)
    analysis = analyse(trace.write(tmp_path / "t.json"))
    assert (analysis.gpu_count, round(analysis.steps[0].forward_seconds * 1e6)) == (2, 50)
