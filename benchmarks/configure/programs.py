"""The programs of the benchmark: captured on the virtual GPU, with an assumption of what loading their data costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tonnage.benchmark.time_models import shipped_model
from tonnage.configure.host_side import wait_seconds
from tonnage.configure.predicted import gradient_bytes_of, indicators_of_report, known_of
from tonnage.configure.work import Work
from tonnage.estimate.estimate import Report
from tonnage.estimate.estimator import estimate_trace
from tonnage.hardware import Gpu
from tonnage.program.capture import CaptureOptions, capture
from tonnage.program.digest import program_digest
from tonnage.program.program import parse_program
from tonnage.program.trace import Trace
from tonnage.program.trace_file import read_trace, write_trace

PROGRAMS = Path(__file__).parents[1] / "accuracy" / "programs"


@dataclass(frozen=True)
class Sample:
    """`loading_seconds` is what one core works on the data of a step, `workers` what its author has chosen."""

    name: str
    script: str
    arguments: tuple[str, ...]
    loading_seconds: float
    workers: int

    def trace(self, folder: Path) -> Trace:
        """Captured once, then kept in the folder."""
        file = folder / f"{self.name}.trace"
        if not file.exists():
            program = parse_program(str(PROGRAMS / self.script), self.arguments)
            write_trace(capture(program, CaptureOptions()), file)
        return read_trace(file)

    def digest(self) -> str:
        return program_digest(parse_program(str(PROGRAMS / self.script), self.arguments))


# Our assumptions: about 8 ms to decode and crop an image, next to nothing to slice tokens out of memory.
SAMPLES = (
    Sample("resnet50", "resnet.py", ("--arch", "resnet50", "--batch-size", "64"), 64 * 8e-3, 4),
    Sample("gpt", "gpt.py", ("--batch-size", "8"), 2e-4, 0),
    Sample("vit", "vit.py", ("--batch-size", "32"), 32 * 8e-3, 8),
    Sample("unet", "unet.py", ("--batch-size", "8"), 8 * 12e-3, 2),
    Sample("dlrm", "dlrm.py", (), 6e-3, 0),
    Sample("lstm", "lstm_lm.py", (), 1e-4, 0),
    Sample("bert", "bert_encoder.py", ("--batch-size", "32"), 32 * 1e-4, 1),
    Sample("mobilenet", "mobilenet.py", (), 64 * 8e-3, 0),
)

# Not looked at while the rules were written and tried; nor were the node types of cluster-held-out.yaml.
HELD_OUT = (
    Sample("convnext", "convnext.py", (), 32 * 8e-3, 6),
    Sample("densenet", "densenet.py", (), 16 * 8e-3, 0),
    Sample("swin", "swin.py", (), 16 * 8e-3, 2),
    Sample("dcgan", "dcgan.py", (), 64 * 1e-3, 1),
    Sample("gru", "gru_classifier.py", (), 5e-4, 0),
    Sample("seq2seq", "seq2seq.py", (), 4e-3, 0),
    Sample("wavenet", "wavenet.py", (), 2e-2, 2),
    Sample("efficientnet", "efficientnet.py", (), 32 * 8e-3, 0),
)


def report_of(sample: Sample, gpus: list[Gpu], folder: Path) -> Report:
    return estimate_trace(sample.trace(folder), gpus, curve=False, time_model=shipped_model())


def work_of(sample: Sample, report: Report, source: str, most_gpus: int) -> Work:
    """The program as it would be seen on a node with that GPU; nothing is known of others."""
    shown = indicators_of_report(report, source, sample.digest())
    busy = shown.step_seconds
    wait = wait_seconds(sample.loading_seconds, sample.workers, 64, busy)
    step = busy + wait
    seen = replace(
        shown, basis="measured", step_seconds=step, data_wait_seconds=wait, loader_workers=sample.workers,
        cpu_cores_used=1 + min(sample.loading_seconds, wait if not sample.workers else sample.workers * step) / step,
        peak_host_bytes=6 << 30,
    )  # fmt: skip
    return Work(indicators=seen, most_gpus=most_gpus, gradient_bytes=gradient_bytes_of(report))


def with_truth(work: Work, report: Report) -> Work:
    """The same, with an estimate of every GPU: what counts as the truth here."""
    return replace(work, known=known_of(report))
