"""Captures a program: runs it in a process of its own against the virtual GPU and reads the Trace it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from tonnage.errors import CaptureError, MissingDependency, UsageError
from tonnage.hardware import Gpu, find_gpu
from tonnage.program import isolation
from tonnage.program.program import Program
from tonnage.program.trace import Trace
from tonnage.program.trace_file import read_trace

DEFAULT_STEPS = 4  # the first, which sets things up, and three more
MOST_BATCH = 10_000_000
# Experiment trackers would start processes and talk to servers for a run that is none.
_QUIET = {
    "WANDB_MODE": "disabled", "COMET_MODE": "disabled", "MLFLOW_TRACKING_URI": "", "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false", "PYTHONDONTWRITEBYTECODE": "1", "CLEARML_OFFLINE_MODE": "1",
    "PYTORCH_JIT": "0",  # see `_no_scripts` in virtual_gpu/patches.py; classes that derive from ScriptModule need it early
}  # fmt: skip
_MARK = "TONNAGE_CAPTURE"  # tells the processes that a capture started, whatever became of their parents
_STARTING_SECONDS = 0.3  # until a process that was being started carries its mark
_ENDING_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """How to capture. `gpu` is the one that `torch.cuda` pretends to be."""

    steps: int = DEFAULT_STEPS
    batch: int | None = None
    batch_option: str = ""
    sizes: Mapping[str, int] | None = None
    gpu: str = "H200"
    timeout_seconds: float = 900.0
    python: str = sys.executable


def capture(program: Program, options: CaptureOptions | None = None) -> Trace:
    """The Trace of a program; raises `CaptureError` with one sentence when it cannot be followed."""
    options = options or CaptureOptions()
    _check(options)
    if program.kind == "trace":
        if options.batch is not None:
            raise UsageError("a saved trace has the batch size it was captured with", "capture the program again")
        return read_trace(program.target)
    if program.kind == "onnx":
        from tonnage.program.onnx_model import trace_onnx

        return trace_onnx(Path(program.target), batch=options.batch, sizes=options.sizes, runs=options.steps)
    if program.kind == "caffe":
        from tonnage.program.caffe.model import open_network

        open_network(program, batch=options.batch, sizes=options.sizes)  # says what is wrong before anything runs
    return _capture_in_process(program, options)


def _check(options: CaptureOptions) -> None:
    if options.steps < 2:
        raise UsageError(
            f"{options.steps} steps are too few: the optimizer's state appears in the first", "use at least 2"
        )
    if options.batch is not None and not 1 <= options.batch <= MOST_BATCH:
        raise UsageError(f"a batch of {options.batch} is impossible", f"choose one from 1 to {MOST_BATCH:,}")


def _capture_in_process(program: Program, options: CaptureOptions) -> Trace:
    if options.python == sys.executable and find_spec("torch") is None:
        raise MissingDependency(
            "capturing a PyTorch program needs torch, which is not installed here",
            "pip install torch (a CPU build is enough), or estimate a saved trace",
        )
    with tempfile.TemporaryDirectory(prefix="tonnage-") as folder:
        request = Path(folder, "request.json")
        request.write_text(json.dumps(_request(program, options, folder)))
        output = _run(program, request, options)
        return _result(program, Path(folder), output)


def _request(program: Program, options: CaptureOptions, folder: str) -> dict[str, Any]:
    return {
        "kind": program.kind,
        "target": program.target,
        "function": program.function,
        "arguments": program.arguments,
        "name": program.name,
        "steps": options.steps,
        "batch": options.batch,
        "batch_option": options.batch_option,
        "sizes": dict(options.sizes or {}),
        "folder": folder,
        "gpu": pretended(find_gpu(options.gpu)),
    }


def pretended(gpu: Gpu) -> dict[str, Any]:
    """What `torch.cuda.get_device_properties` will say. AMD's cards answer through the same interface."""
    capability = gpu.compute_capability.split(".") if "." in gpu.compute_capability else ("9", "0")
    return {
        "name": gpu.driver_name or gpu.name,
        "compute_capability": [int(part) for part in capability],
        "memory_bytes": gpu.usable_bytes,
        "sms": gpu.sms,
        "l2_bytes": gpu.l2_bytes,
    }


def _run(program: Program, request: Path, options: CaptureOptions) -> str:
    """Run the child to its end; whatever it started ends with it."""
    folder, source = request.parent, str(Path(__file__).parents[2])
    script_folder = str(Path(program.target).absolute().parent) if program.kind == "script" else ""
    isolated = [options.python, "-S", "-E", isolation.__file__, str(folder), script_folder]
    command = [*isolated, options.python, "-m", "tonnage.program.virtual_gpu.child", str(request)]
    (folder / "tmp").mkdir()
    path = os.pathsep.join(p for p in (source, os.environ.get("PYTHONPATH", "")) if p)
    ours = {**_QUIET, "PYTHONPATH": path, "TMPDIR": str(folder / "tmp"), _MARK: str(request)}
    with Path(folder, "output.txt").open("w+", errors="replace") as output:
        process = None  # a signal may come before it is known
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                env={"PYTHONHASHSEED": "0", **os.environ, **ours},
            )  # fmt: skip
            process.wait(options.timeout_seconds)
        except subprocess.TimeoutExpired:
            raise CaptureError(
                f"the program did not finish {options.steps} steps within {options.timeout_seconds:.0f} s",
                "if it prepares data for long, give it more time with --timeout",
            ) from None
        finally:
            _end(process, str(request))
        output.seek(0)
        return output.read()


def _end(process: subprocess.Popen[bytes] | None, mark: str) -> None:
    """End the child, everything in its session, and what left the session but carries the mark in its environment.

    A killed process lives on until the kernel comes round to it, and one that was starting another may have
    finished doing so: look again until nothing is left.
    """
    if process is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    else:
        time.sleep(_STARTING_SECONDS)
    end = time.monotonic() + _ENDING_SECONDS
    while (left := list(_marked(mark))) and time.monotonic() < end:
        for other in left:
            with contextlib.suppress(psutil.Error):
                other.kill()
        psutil.wait_procs(left, timeout=0.2)


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(_MARK) == mark:
                yield process


def _result(program: Program, folder: Path, output: str) -> Trace:
    trace, failure = folder / "result.trace", folder / "failure.json"
    if trace.exists():
        return read_trace(trace)
    if failure.exists():
        details = json.loads(failure.read_text())
        message = details["message"]
        if "exited with status" in message and output.strip():
            message += f": {output.strip().splitlines()[-1][:300]}"
        raise CaptureError(message, details["hint"])
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
    raise CaptureError(f"the process that ran {program.target} died without a word: {last[:300]}")
