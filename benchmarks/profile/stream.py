"""Makes a trace of a gigabyte like those of a GPU training run, reads it, and prints time and peak memory of the reading.

    python benchmarks/profile/stream.py [--gigabytes 1.0] [--folder DIR]

Reading happens in a process of its own, so that its peak resident memory is its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

OPERATORS = 400  # of a forward pass; as many of a backward pass
READER = """
import json, resource, sys, time
from tonnage.profile.build import report_of_trace
from pathlib import Path
began = time.perf_counter()
report = report_of_trace(Path(sys.argv[1]))
print(json.dumps({
    "seconds": time.perf_counter() - began,
    "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "steps": report.indicators.steps,
    "step_seconds": report.indicators.step_seconds,
    "forward_seconds": report.indicators.forward_seconds,
    "backward_seconds": report.indicators.backward_seconds,
}))
"""


def event(name: str, category: str, thread: int, start: float, duration: float, arguments: str) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": 4242, "tid": {thread},\n'
        f'    "ts": {start:.3f}, "dur": {duration:.3f},\n    "args": {{\n      {arguments}\n    }}\n  }}'
    )


def flow(phase: str, category: str, number: int, thread: int, start: float) -> str:
    binding = ', "bp": "e"' if phase == "f" else ""
    return (
        f'  {{\n    "ph": "{phase}", "id": {number}, "pid": 4242, "tid": {thread}, "ts": {start:.3f},\n'
        f'    "cat": "{category}", "name": "{category}"{binding}\n  }}'
    )


def step_events(step: int, number: int) -> Iterator[str]:
    """A step of 20 ms: operators with launches and kernels, and arrows between them."""
    begin = 1e9 + step * 20_000.0
    yield event(f"ProfilerStep#{step}", "user_annotation", 100, begin, 19_990, f'"External id": {number}')
    for phase, thread, at in (("forward", 100, begin + 50), ("backward", 101, begin + 9_000)):
        for index in range(OPERATORS):
            start, correlation = at + index * 20, number + (index if phase == "forward" else OPERATORS + index)
            name = (
                f"aten::op{index % 60}"
                if phase == "forward"
                else f"autograd::engine::evaluate_function: Op{index % 60}Backward0"
            )
            details = f'"External id": {correlation}, "Record function id": 0, "Sequence number": {correlation}, "Ev Idx": {correlation}'
            yield event(name, "cpu_op", thread, start, 15, details)
            if phase == "backward":
                yield event(
                    f"Op{index % 60}Backward0", "cpu_op", thread, start + 1, 13, details + ', "Fwd thread id": 1'
                )
                yield flow("f", "fwdbwd", number + index, thread, start + 1)
            else:
                yield flow("s", "fwdbwd", correlation, thread, start)
            yield event(
                "cudaLaunchKernel", "cuda_runtime", thread, start + 5, 4, f'"cbid": 211, "correlation": {correlation}'
            )
            yield flow("s", "ac2g", correlation, thread, start + 5)
            kernel = (
                f"void at::native::vectorized_elementwise_kernel<4, functor{index % 60}, array>(int, functor, array)"
            )
            shape = (
                '"queued": 0, "device": 0, "context": 1, "stream": 7, "registers per thread": 32, "shared memory": 0, '
            )
            shape += '"blocks per SM": 8.1, "warps per SM": 64.0, "grid": [1024, 1, 1], "block": [128, 1, 1], '
            yield event(
                kernel,
                "kernel",
                7,
                start + 200,
                12,
                shape + f'"External id": {correlation}, "correlation": {correlation}',
            )
            yield flow("f", "ac2g", correlation, 7, start + 200)


def write_trace(path: Path, size_bytes: int) -> int:
    written = events = step = 0
    with path.open("w") as file:
        file.write('{\n  "schemaVersion": 1,\n  "deviceProperties": [],\n  "traceEvents": [\n')
        while written < size_bytes:
            rows = list(step_events(step, step * 2 * OPERATORS + 1))
            text = (",\n" if step else "") + ",\n".join(rows)
            file.write(text)
            written, events, step = written + len(text), events + len(rows), step + 1
        file.write("\n  ]\n}\n")
    return events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder, "trace.json")
        began = time.perf_counter()
        events = write_trace(path, round(options.gigabytes * 1e9))
        print(
            f"wrote {path.stat().st_size / 1e9:.2f} GB, {events:,} events in {time.perf_counter() - began:.0f} s",
            flush=True,
        )
        done = subprocess.run([sys.executable, "-c", READER, str(path)], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        print(f"read in {found['seconds']:.1f} s, peak resident memory {found['peak_rss_bytes'] / 1e6:.0f} MB")
        print(json.dumps(found))


if __name__ == "__main__":
    main()
