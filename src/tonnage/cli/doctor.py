"""`tonnage doctor`: what is installed here, what works, and what to do about the rest."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `state` is ok, missing or broken."""

    name: str
    state: str
    detail: str
    hint: str = ""


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Check this installation: Python, torch, ONNX, NVIDIA driver, catalogue, a capture of a tiny program."""
    findings = [_python(), _package("torch", "pip install torch (a CPU build is enough)"), _catalogue(), _driver()]
    findings.append(_package("onnx", "pip install tonnage[onnx], to read ONNX files"))
    findings += [_capture(findings[1]), _isolation()]
    if as_json:
        import json

        print(json.dumps({"findings": [{n: getattr(f, n) for n in f.__slots__} for f in findings]}))
    else:
        _print(findings)
    return 1 if any(f.state == "broken" for f in findings) else 0


def _python() -> Finding:
    return Finding("python", "ok", ".".join(map(str, sys.version_info[:3])))


def _package(name: str, hint: str) -> Finding:
    try:
        return Finding(name, "ok", version(name))
    except PackageNotFoundError:
        return Finding(name, "missing", "not installed", hint)


def _catalogue() -> Finding:
    from tonnage.hardware import all_gpus

    return Finding("GPU catalogue", "ok", f"{len(all_gpus())} GPUs")


def _driver() -> Finding:
    from tonnage.errors import TonnageError
    from tonnage.hardware import probe

    try:
        machine = probe()
    except TonnageError as error:
        return Finding("NVIDIA driver", "missing", error.message, "not needed for estimates")
    return Finding("NVIDIA driver", "ok", f"{machine.driver_version}, {len(machine.gpus)} GPUs")


_TINY = """import torch
model = torch.nn.Linear(8, 8).to("cuda")
with torch.no_grad():
    model(torch.ones(4, 8).cuda())
"""


def _capture(torch: Finding) -> Finding:
    """A whole capture, the way users need it."""
    if torch.state != "ok":
        return Finding("virtual GPU", "missing", "needs torch", torch.hint)
    import tempfile
    from pathlib import Path

    from tonnage.api import estimate
    from tonnage.errors import TonnageError

    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "tiny.py")
        script.write_text(_TINY)
        try:
            estimate(script, gpus=["H200"], timeout_seconds=120)
        except TonnageError as error:
            return Finding("virtual GPU", "broken", error.message, error.hint or "please report this")
    return Finding("virtual GPU", "ok", "a tiny model was followed")


def _isolation() -> Finding:
    """Are writes held back that do not go through Python?"""
    import subprocess
    import tempfile

    from tonnage.program import isolation

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-S", "-E", isolation.__file__, folder, ""]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return Finding("isolation", "ok", "whatever a program writes during a capture vanishes")
    detail = result.stdout.strip() or "failed"
    hint = "files that a program writes without Python stay; user namespaces, overlayfs and Landlock prevent that"
    return Finding("isolation", "missing", detail, hint)


def _print(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    colours = {"ok": "green", "missing": "yellow", "broken": "red"}
    for finding in findings:
        console.print(
            Text.assemble((f"{finding.state:8}", colours[finding.state]), f"{finding.name:15} {finding.detail}")
        )
        if finding.hint and finding.state != "ok":
            console.print(Text(f"{'':8}{'':15} {finding.hint}", style="dim"))
