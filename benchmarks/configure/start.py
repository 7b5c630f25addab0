"""Time from `tonnage deploy label.json` to the first HTTP answer of the deployed program, with the base image present.

    python benchmarks/configure/start.py [--engine podman] [--repeats 9] [--image NAME] [--write]

"first" is a program that was never deployed (its image is built in that time), "again" the same one a second time, with a
label of its own: each label is deployed once. Both are the whole command, a process of its own with all its imports, which
verifies the label; by the clock, and the answer is polled for every 5 ms. Without --image, an image is made of this Python
and its libraries, as the tests do. Everything that was started is removed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from datetime import date
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "engines"))
from rootfs import python_home, write_rootfs

from tonnage.configure import label_json
from tonnage.configure.configuration import HardwareConfiguration
from tonnage.configure.label import ImageReference, Label, PredictedTime
from tonnage.configure.signing import KnownServer, public_key, sign
from tonnage.engines.ports import free_port
from tonnage.program.digest import program_digest
from tonnage.program.program import parse_program
from tonnage.service.known_servers import add_server
from tonnage.service.label_program import write_program

BAR_SECONDS = 3.0
SERVER = """
import http.server
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"hello from NUMBER")
http.server.HTTPServer(("", 8000), Hello).serve_forever()
"""


def make_image(engine: str) -> str:
    name = "localhost/tonnage-benchmark-python:latest"
    with tempfile.TemporaryDirectory() as folder:
        archive = write_rootfs(Path(folder) / "root.tar")
        change = f"ENV PYTHONHOME={python_home()}"
        subprocess.run([engine, "import", "--change", change, str(archive), name], check=True, capture_output=True)
    return name


def remove_images(engine: str, image: str) -> None:
    identity = _output(engine, "image", "inspect", "--format", "{{.Id}}", image)
    built = _output(engine, "images", "--quiet", "--filter", f"label=tonnage.base={identity}").split()
    _output(engine, "rmi", "--force", *built, image)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def tonnage(*arguments: str) -> str:
    command = [sys.executable, "-m", "tonnage", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"tonnage {' '.join(arguments)}: {done.stderr}")
    return done.stdout.strip()


class Labels:
    """Signed by a server that is known here, and by nobody else."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._key = folder, secrets.token_bytes(32)
        os.environ["TONNAGE_STATE"] = str(folder / "state")
        os.environ["TONNAGE_SERVERS"] = str(folder / "servers.json")
        os.environ["TONNAGE_SEEN_LABELS"] = str(folder / "seen.json")
        add_server(KnownServer(name="benchmark", public_key=public_key(self._key)))

    def make(self, script: Path, image: str) -> Path:
        program, now, path = parse_program(str(script)), int(time.time()), self._folder / "label.json"
        label = Label(
            id=secrets.token_hex(16),
            server="benchmark",
            hardware=HardwareConfiguration(
                node_type="here", gpu="", gpu_count=0, communication="none", pcie_generation=None, pcie_lanes=None,
                cpu_cores=1, sockets=1, memory_bytes=256 << 20, loader_workers=0, pinned_memory=False,
            ),
            image=ImageReference(reference=image or "localhost/none:latest", digest=None),
            program_digest=program_digest(program),
            rules_version="benchmark",
            predicted=PredictedTime(seconds=1.0, low_seconds=1.0, high_seconds=1.0, steps=1),
            issued_at=now,
            expires_at=now + 600,
        )  # fmt: skip
        path.write_bytes(label_json.dump(sign(label, self._key)))
        write_program(path, program)
        return path


def seconds_to_answer(label: Path, engine: str) -> float:
    port = 8000 if engine == "local" else free_port()
    begin = time.perf_counter()
    identity = tonnage("deploy", str(label), "--engine", engine, "--port", f"{port}:8000")
    try:
        wait_for_answer(port)
        return time.perf_counter() - begin
    finally:
        tonnage("stop", identity, "--remove")


def wait_for_answer(port: int) -> None:
    deadline = time.perf_counter() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
                assert answer.status == 200
                return
        except OSError:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.005)


def measure(engine: str, image: str, repeats: int) -> list[dict[str, object]]:
    seconds: dict[str, list[float]] = {"first": [], "again": []}
    with tempfile.TemporaryDirectory() as folder:
        labels, script = Labels(Path(folder)), Path(folder) / "serve.py"
        for number in range(repeats):
            script.write_text(SERVER.replace("NUMBER", f"{number} {time.time()}"))
            for way in seconds:
                seconds[way].append(seconds_to_answer(labels.make(script, image), engine))
    return [
        {"engine": engine, "way": way, "seconds": each, "median": statistics.median(each), "worst": max(each)}
        for way, each in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="podman", choices=["podman", "docker", "local"])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--image", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    image = options.image or ("" if options.engine == "local" else make_image(options.engine))
    head = {"date": date.today().isoformat(), "cores": os.cpu_count(), "python": platform.python_version()}
    if options.engine != "local":
        version = subprocess.run([options.engine, "--version"], capture_output=True, text=True, check=True).stdout
        head["client"] = version.strip()
    rows = measure(options.engine, image, options.repeats)
    for row in rows:
        print(
            f"{row['engine']}, {row['way']}: median {row['median']:.2f} s, worst {row['worst']:.2f} s (bar {BAR_SECONDS} s)"
        )
    if options.engine != "local" and not options.image:
        remove_images(options.engine, image)
    if options.write:
        path = Path(__file__).parent / "results" / f"start-{options.engine}-{head['date']}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in (head, *rows)))
        print(path)


if __name__ == "__main__":
    main()
