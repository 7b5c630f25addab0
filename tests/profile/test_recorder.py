"""Programs that are timed while they run, and say so in their own output."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tonnage.engines.base import Source
from tonnage.engines.recording import recorded_command, with_recorder
from tonnage.errors import InvalidFile
from tonnage.profile.recorded import find_record, without_records
from tonnage.profile.recorder import PREFIX

TRAINING = """
import sys
import torch
print("arguments", sys.argv[1:], "ours", [name for name in sys.modules if name.startswith("tonnage")])
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range({steps}):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
print("ready", end="")
{after}
"""


def record(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As in an image that has torch and not Tonnage: the recorder lies beside the program."""
    source = with_recorder(Source(files={"train.py": text.encode()}, digest="sha256:0"))
    for name, content in source.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    command = recorded_command((sys.executable, "train.py", *arguments))
    return subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip


def test_a_program_runs_as_by_itself_and_its_steps_are_timed(tmp_path: Path) -> None:
    done = record(tmp_path, TRAINING.format(steps=50, after=""), "--epochs", "3")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout
    assert list(without_records(lines)) == ["arguments ['--epochs', '3'] ours []", "ready"]
    seen = find_record(lines, "train.py", "sha256:0")
    assert seen is not None
    assert (seen.run_steps, seen.indicators.device, seen.indicators.loader_workers) == (49, "cpu", None)
    parts = seen.indicators
    whole = parts.forward_seconds + parts.backward_seconds + parts.optimizer_seconds + parts.idle_seconds
    assert whole == pytest.approx(parts.step_seconds)
    assert parts.backward_seconds > 0
    assert parts.steps == 50 - 10 - 1  # without the warm-up, and the step in which the clock begins
    assert seen.machine.torch


def test_a_program_that_fails_shows_its_own_error_and_keeps_its_code(tmp_path: Path) -> None:
    done = record(tmp_path, TRAINING.format(steps=20, after='raise ValueError("my own")'))
    assert done.returncode == 1
    assert "ValueError: my own" in done.stdout
    assert "recorder" not in done.stdout.replace(PREFIX, "")
    assert record(tmp_path, TRAINING.format(steps=1, after="sys.exit(7)")).returncode == 7


ANNOTATED = """
from dataclasses import dataclass, fields
import torch
@dataclass
class Options:
    rate: float = 0.1
print(fields(Options)[0].type("0.5"))
"""
RAISES_ONCE = """
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1)
for step in range(40):
    def closure():
        if step == 3:
            raise RuntimeError("a bad batch")
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().sum()
        loss.backward()
        return loss
    try:
        optimizer.step(closure)
    except RuntimeError:
        print("skipped")
"""
COMPILED = """
import warnings
import torch
warnings.simplefilter("error")
model = torch.compile(torch.nn.Linear(8, 8), backend="eager")
with torch.no_grad():
    for _ in range(40):
        model(torch.ones(4, 8))
from torch._dynamo.utils import counters
print(counters["stats"]["unique_graphs"])
"""
WORKERS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.ones(40, 8))
for epoch in range(4):
    for (batch,) in DataLoader(data, batch_size=4{workers}):
        model(batch).sum().backward()
        optimizer.step()
print("ready")
"""


def test_a_script_is_compiled_as_by_itself(tmp_path: Path) -> None:
    assert record(tmp_path, ANNOTATED).stdout == "0.5\n"


def test_a_step_that_raises_does_not_end_the_counting(tmp_path: Path) -> None:
    lines = record(tmp_path, RAISES_ONCE).stdout.splitlines()
    seen = find_record(lines, "train.py", "sha256:0")
    assert (list(without_records(lines)), seen is not None and seen.run_steps) == (["skipped"], 38)


def test_a_compiled_program_is_compiled_once_and_not_warned(tmp_path: Path) -> None:
    done = record(tmp_path, COMPILED)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert list(without_records(lines)) == ["1"]
    seen = find_record(lines, "train.py", "sha256:0")
    assert seen is not None
    assert 0 < seen.indicators.forward_seconds <= seen.indicators.step_seconds


def test_workers_that_have_ended_are_still_counted(tmp_path: Path) -> None:
    seen = find_record(
        record(tmp_path, WORKERS.format(workers=", num_workers=1")).stdout.splitlines(), "train.py", "sha256:0"
    )
    assert seen is not None
    assert (seen.indicators.cpu_cores_used or 0) > 0


def test_loaders_get_workers_only_where_somebody_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def workers(text: str) -> int | None:
        seen = find_record(record(tmp_path, WORKERS.format(workers=text)).stdout.splitlines(), "train.py", "sha256:0")
        assert seen is not None
        return seen.indicators.loader_workers

    monkeypatch.setenv("TONNAGE_LOADER_WORKERS", "2")
    assert workers("") == 0
    monkeypatch.setenv("TONNAGE_SET_LOADERS", "1")
    assert workers("") == 2
    assert workers(", num_workers=1") == 1


@pytest.mark.parametrize("text", ["print('no torch')", TRAINING.format(steps=3, after="")])
def test_a_program_with_few_steps_or_none_has_no_record(tmp_path: Path, text: str) -> None:
    done = record(tmp_path, text)
    assert done.returncode == 0
    assert find_record(done.stdout.splitlines(), "train.py", "sha256:0") is None


def test_the_last_record_counts_and_the_program_may_print_empty_lines() -> None:
    record = PREFIX + json.dumps({"window": None, "whole": {}})
    lines = ["a", "", "", record, "b", record, "", f"{PREFIX}of a run"]
    assert list(without_records(lines)) == ["a", "", "b", "", f"{PREFIX}of a run"]


@pytest.mark.parametrize("text", ["{}", "nothing", "[" * 100_000, '{"window": Infinity, "whole": 1}', "5", '"a"'])
def test_what_a_program_prints_itself_is_no_record(text: str) -> None:
    lines = [PREFIX + text]
    assert find_record(lines, "train.py", "sha256:0") is None
    assert list(without_records(lines)) == lines


@pytest.mark.parametrize(
    "window",
    [
        {"device": 3},
        {"error": "no \x1b[31m"},
        {"means": {"step_seconds": 1e999}, "device": "cpu"},
        [],
        7,
        {"device": "cuda"},
    ],
)
def test_a_forged_record_is_refused_in_one_sentence(window: object) -> None:
    line = PREFIX + json.dumps({"window": window, "whole": {"steps": 1, "seconds": 1}}).replace("Infinity", "1e999")
    with pytest.raises(InvalidFile) as caught:
        find_record([line], "train.py", "sha256:0")
    assert caught.value.message.isprintable()
