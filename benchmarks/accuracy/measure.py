"""Runs the configurations on a real GPU, one process each, and writes what each really took.

    python benchmarks/accuracy/measure.py --out DIR [--only REGEX] [--seconds BUDGET] [--steps 5]

Writes DIR/measurements.jsonl (a header row that describes the machine, then one row a configuration) and DIR/logs.txt;
with --history and --operators also DIR/history-N.jsonl.gz and DIR/operators-N.jsonl.gz. Rows are flushed as they come.
"""

import argparse
import contextlib
import gzip
import importlib
import json
import os
import platform
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from configurations import Configuration
from nvml import open_nvml
from selection import SPLITS, selected

SAMPLE_SECONDS = 0.005
FILE_BYTES = 14 << 20  # a new file after this, so that each stays easy to copy around
LOG_CHARACTERS = 6000
# Imported once before forking: these take longer than most of the programs run.
PRELOADED = (
    "torch",
    "torch.utils.data",
    "torch.utils.checkpoint",
    "torch.optim.swa_utils",
    "transformers",
    "transformers.trainer",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.bert.modeling_bert",
    "transformers.models.llama.modeling_llama",
    "transformers.models.t5.modeling_t5",
    "transformers.models.vit.modeling_vit",
    "transformers.models.whisper.modeling_whisper",
)
COLUMNS = ("peak_allocated_bytes", "peak_requested_bytes", "peak_reserved_bytes", "device_peak_bytes", "context_bytes")


# ---- the child: one configuration in one process ----


class DeviceSampler(threading.Thread):
    """Keeps the most memory the device ever had in use; the allocator only knows its own part of it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self.samples = 0
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            self.peak_bytes = max(self.peak_bytes, device_used_bytes())
            self.samples += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def device_used_bytes() -> int:
    import torch

    free, total = torch.cuda.mem_get_info(0)
    return total - free


def run_job(job: dict[str, Any]) -> None:
    """Run the program as `python PROGRAM ARGUMENTS` would, and leave the result in `job["result"]`."""
    import torch

    result: dict[str, Any] = {"error": None}
    try:
        if job["probe"]:
            result |= describe_machine()
        elif torch.cuda.is_available():
            result |= measured_on_cuda(job)
        else:
            result |= timed(job)
    except BaseException:
        result["error"] = traceback.format_exc()
    Path(job["result"]).write_text(json.dumps(result))


def measured_on_cuda(job: dict[str, Any]) -> dict[str, Any]:
    import torch

    start_bytes = device_used_bytes()  # opens the context
    sampler = DeviceSampler()
    sampler.start()
    if job["history"]:
        import history

        history.start(stacks=job["history"] == "stacks")
    result = timed(job)
    with contextlib.suppress(Exception):  # after a device-side error nothing can be synchronised; keep what is known
        torch.cuda.synchronize()
    sampler.stop()
    statistics = torch.cuda.memory_stats(0)
    result |= {
        "peak_allocated_bytes": statistics["allocated_bytes.all.peak"],
        "peak_requested_bytes": statistics["requested_bytes.all.peak"],
        "peak_reserved_bytes": statistics["reserved_bytes.all.peak"],
        "reserved_end_bytes": statistics["reserved_bytes.all.current"],
        "allocation_retries": statistics["num_alloc_retries"],
        "out_of_memory_errors": statistics["num_ooms"],
        "device_start_bytes": start_bytes,
        "device_samples": sampler.samples,
    }
    if "operators" in result:  # the recorder reset all peaks at every operator, and kept only this one
        result["peak_allocated_bytes"] = max(result["peak_allocated_bytes"], result["operators"]["peak_bytes"])
        result["peak_reserved_bytes"] = max(result["peak_reserved_bytes"], result["reserved_end_bytes"])
        del result["peak_requested_bytes"]
    with contextlib.suppress(Exception):
        end_bytes = device_used_bytes()
        result["device_end_bytes"] = end_bytes
        result["device_peak_bytes"] = max(end_bytes, sampler.peak_bytes)
        result["context_bytes"] = end_bytes - result["reserved_end_bytes"]
    if job["history"]:
        import history

        result["history"] = history.collect()
    return result


def timed(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds and error of the program; with `operators`, also its operators."""
    import torch
    from operators import OperatorRecorder

    sys.argv = [job["program"], *job["arguments"]]
    recorder = OperatorRecorder("cuda" if torch.cuda.is_available() else "cpu") if job["operators"] else None
    error = None
    started = time.perf_counter()
    try:
        with recorder or contextlib.nullcontext():
            runpy.run_path(job["program"], run_name="__main__")
    except SystemExit as stop:
        error = None if stop.code in (None, 0) else f"exit {stop.code}"
    except BaseException:
        error = traceback.format_exc()
    result: dict[str, Any] = {"error": error, "seconds": round(time.perf_counter() - started, 3)}
    if recorder:
        result["operators"] = {
            "peak_bytes": recorder.peak_bytes,
            "between_bytes": recorder.between_bytes,
            "rows": list(recorder.rows.values()),
        }
    return result


def describe_machine() -> dict[str, Any]:
    import torch
    import transformers

    machine: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "bad_fork": getattr(torch._C, "_cuda_isInBadFork", bool)(),
        "allocator_settings": os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF"),
    }
    if not machine["bad_fork"] and torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        machine |= {
            "gpu": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "total_bytes": torch.cuda.mem_get_info(0)[1],
            "device_start_bytes": device_used_bytes(),
        }
    return machine


# ---- the parent: never touches CUDA, so that its children can be forked ----


def preload() -> None:
    # With this, `torch.cuda.is_available` asks NVML and leaves CUDA alone; some imports call it.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"not preloaded: {name}: {error}", flush=True)
    del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]


class Parent:
    """Starts one child at a time and writes what it reports."""

    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self.options = options
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.scratch = scratch
        self.nvml = open_nvml()
        self.fork = not options.fresh_process
        self.baseline_bytes = self.nvml.used_bytes() if self.nvml else 0
        self.gz_numbers: dict[str, int] = {}

    def probe(self) -> dict[str, Any]:
        machine = self._child(probe=True)
        if machine.get("bad_fork"):
            print("an import initialised CUDA: a fresh interpreter for each configuration", flush=True)
            self.fork = False
            machine = self._child(probe=True)
        machine.pop("bad_fork", None)
        return {
            "machine": machine,
            "driver": self.nvml.driver() if self.nvml else None,
            "device_before_bytes": self.baseline_bytes,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "steps": self.options.steps,
            "history": self.options.history,
            "operators": self.options.operators,
        }

    def measure(self, configuration: Configuration) -> dict[str, Any]:
        before = self._settled_bytes()
        started = time.perf_counter()
        result = self._child(configuration)
        row = {
            "name": configuration.name,
            "program": configuration.program,
            "arguments": list(configuration.arguments),
            "split": configuration.split,
            "steps": self.options.steps,
            "device_before_bytes": before,
            "wall_seconds": round(time.perf_counter() - started, 3),
        }
        if "history" in result:
            self.append("history", [{"name": configuration.name} | result.pop("history")])
        if "operators" in result:
            operators = result.pop("operators")
            self.append("operators", [{"name": configuration.name} | operator for operator in operators.pop("rows")])
            row["operators"] = operators
        return row | result

    def _settled_bytes(self) -> int:
        """The driver frees a dead process's memory a little later: wait for it, since no run may see another's."""
        if self.nvml is None:
            return 0
        for _ in range(200):
            if self.nvml.used_bytes() <= self.baseline_bytes + (8 << 20):
                break
            time.sleep(0.02)
        return self.nvml.used_bytes()

    def _child(self, configuration: Configuration | None = None, probe: bool = False) -> dict[str, Any]:
        job = {
            "probe": probe,
            "program": str(configuration.path) if configuration else "",
            "arguments": [*configuration.arguments, "--steps", str(self.options.steps)] if configuration else [],
            "history": None if probe else self.options.history,
            "operators": False if probe else self.options.operators,
            "result": str(self.scratch / "result.json"),
        }
        result_path, log_path = Path(job["result"]), self.scratch / "log"
        result_path.unlink(missing_ok=True)
        log = os.open(log_path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        pid = self._fork(job, log) if self.fork else self._spawn(job, log)
        os.close(log)
        status, nvml_peak = self._wait(pid)
        result = {} if probe else {"nvml_peak_bytes": nvml_peak}
        if result_path.exists():
            result |= json.loads(result_path.read_text())
        else:
            result["error"] = f"the process ended with status {status} and no result"
        self._log(configuration.name if configuration else "probe", log_path, result.get("error"))
        return result

    def _fork(self, job: dict[str, Any], log: int) -> int:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a killed program's log is kept
            try:
                run_job(job)
                sys.stdout.flush()
            finally:
                os._exit(0)  # the parent's own cleanup is not the child's to run
        return pid

    def _spawn(self, job: dict[str, Any], log: int) -> int:
        command = [sys.executable, __file__, "--out", str(self.out), "--job", json.dumps(job)]
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True).pid

    def _wait(self, pid: int) -> tuple[int, int]:
        deadline = time.monotonic() + self.options.limit
        peak = 0
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            if self.nvml:
                peak = max(peak, self.nvml.used_bytes())
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                deadline = float("inf")
            time.sleep(SAMPLE_SECONDS)
        # Data-loader workers inherit the GPU's file descriptors and would keep its memory taken.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        return status, peak

    def _log(self, name: str, path: Path, error: str | None) -> None:
        text = path.read_text(errors="replace")[-LOG_CHARACTERS:]
        with (self.out / "logs.txt").open("a") as file:
            file.write(f"==== {name}\n{text}\n{error or ''}\n")

    def append(self, kind: str, rows: list[dict[str, Any]]) -> None:
        """Each call adds a whole gzip member, so the file can be read whenever the run is stopped."""
        lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
        with gzip.open(self._gz_path(kind), "ab") as file:
            file.write(lines.encode())

    def _gz_path(self, kind: str) -> Path:
        number = self.gz_numbers.setdefault(kind, 0)
        path = self.out / f"{kind}-{number}.jsonl.gz"
        if path.exists() and path.stat().st_size > FILE_BYTES:
            self.gz_numbers[kind] += 1
            path = self.out / f"{kind}-{number + 1}.jsonl.gz"
        return path


def text_of(row: dict[str, Any]) -> str:
    numbers = "".join(f"{row.get(column, 0) / 2**20:>12.1f}" for column in COLUMNS)
    seconds = f"{row.get('seconds', 0):>7.1f}{row['wall_seconds']:>7.1f}"
    error = (row["error"] or "").strip().splitlines()
    return f"{row['name']:<44}{seconds}{numbers}  {error[-1][:90] if error else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="", help="regular expression that a configuration's name must contain")
    parser.add_argument("--split", choices=SPLITS, default="all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no configuration after this long")
    parser.add_argument("--limit", type=float, default=60.0, help="most seconds for one configuration")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--history", nargs="?", const="plain", choices=("plain", "stacks"), help="allocator events")
    parser.add_argument("--operators", action="store_true", help="memory used inside each operator")
    parser.add_argument("--fresh-process", action="store_true", help="a new interpreter each instead of a fork")
    parser.add_argument("--list", action="store_true", help="only print the configurations")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        run_job(json.loads(options.job))
        return
    if options.list:
        for c in selected(options.split, options.only):
            print(f"{c.split:<5} {c.name:<44} {c.program} {' '.join(c.arguments)}")
        return
    started = time.monotonic()
    if not options.fresh_process:
        preload()
    with tempfile.TemporaryDirectory() as scratch:
        measure_all(Parent(options, Path(scratch)), selected(options.split, options.only), started)


def measure_all(parent: Parent, configurations: list[Configuration], started: float) -> None:
    rows = []
    with (parent.out / "measurements.jsonl").open("a") as file:
        header = parent.probe()
        print(json.dumps(header), flush=True)
        file.write(json.dumps(header) + "\n")
        if parent.options.history:
            import history

            parent.append("history", [header | {"legend": history.LEGEND}])
        if parent.options.operators:
            parent.append("operators", [header])
        print(f"{'MiB':<44}{'run s':>7}{'all s':>7}" + "".join(f"{c.removesuffix('_bytes')[:11]:>12}" for c in COLUMNS))
        for configuration in configurations:
            if time.monotonic() - started > parent.options.seconds:
                print("time is up", flush=True)
                break
            rows.append(parent.measure(configuration))
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
            print(text_of(rows[-1]), flush=True)
    failed = [row["name"] for row in rows if row["error"]]
    left = len(configurations) - len(rows)
    print(f"{len(rows)} measured in {time.monotonic() - started:.0f} s, {left} left, {len(failed)} failed: {failed}")


if __name__ == "__main__":
    main()
