"""The folder of one Slurm job, which its nodes see as well: its files, its output, and what it wrote about itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tonnage.engines.base import Job, JobState
from tonnage.engines.bundle import write_files
from tonnage.engines.folders import read_json, write_json
from tonnage.engines.slurm_script import COPY, OUTPUT, TOKEN
from tonnage.engines.slurm_states import Record
from tonnage.errors import UsageError

_JOB, _SUBMITTED, _SCRIPT, _CANCELLED = "job.json", "submitted.json", "job.sh", "cancelled"
_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class JobFolder:
    """`path` may be a link to the folder that the user named."""

    path: Path

    def create(self, job: Job, token: str, shared: Path | None) -> None:
        """All that the job needs, before Slurm hears of it. Raises FileExistsError where the name is taken."""
        try:
            if shared is None:
                self.path.mkdir(mode=0o700)
            else:
                (shared / job.name).mkdir(mode=0o700)
                self.path.symlink_to(shared / job.name)
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            raise UsageError(
                f"{error.filename} cannot be made: {error.strerror}", "--option folder= names another"
            ) from None
        if job.copied_words and job.source is not None:
            write_files(self.path / COPY, job.source.files)
        (self.path / TOKEN).write_text(token)
        (self.path / OUTPUT).touch(mode=0o600)  # so that whoever follows it finds it before the job starts
        write_json(self.path / _JOB, _facts(job))

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def exists(self) -> bool:
        return os.path.lexists(self.path)

    @property
    def token(self) -> str:
        return self._text(TOKEN)

    @property
    def labels(self) -> Mapping[str, str]:
        return self._job().get("labels", {})  # type: ignore[no-any-return]

    @property
    def memory_bytes(self) -> int:
        return int(self._job().get("memory_bytes", 0))

    @property
    def requeues(self) -> bool:
        return bool(self._job().get("requeue"))

    @property
    def slurm_id(self) -> str:
        """As the answer of sbatch was written down or, where nobody came to that, as the job itself says."""
        submitted = read_json(self.path / _SUBMITTED) or {}
        return str(submitted.get("slurm_id") or next(iter(self._text("starts").split()), ""))

    def write_id(self, slurm_id: str) -> None:
        write_json(self.path / _SUBMITTED, {"slurm_id": slurm_id})

    def write_script(self, text: str) -> Path:
        path = self.path / _SCRIPT
        path.write_text(text)
        return path

    def mark_cancelled(self) -> None:
        (self.path / _CANCELLED).touch()

    def devices(self) -> tuple[str, ...]:
        """Rank by rank: `v100n0/gpu2`."""
        files = sorted(self.path.glob("devices.*"), key=lambda path: int(path.suffix[1:]))
        lines = (path.read_text().split() for path in files)
        pairs = ((line[0], line[1].split(",")) for line in lines if len(line) == 2)
        return tuple(f"{node}/gpu{index}" for node, indices in pairs for index in indices)

    def output_end(self) -> str:
        with open(self.path / OUTPUT, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode(errors="replace")

    def own_record(self) -> Record | None:
        """What the job wrote at its end, if it came to that: some clusters forget jobs and keep no accounts."""
        starts = [float(line.split()[1]) for line in self._text("starts").splitlines()]
        known = {
            "slurm_id": self.slurm_id,
            "restarts": max(0, len(starts) - 1),
            "started_at": max(starts, default=None),
        }
        if ended := self._text("ended").split():
            state = "COMPLETED" if ended[0] == "0" else "FAILED"
            return Record(state=state, exit_code=int(ended[0]), ended_at=float(ended[1]), **known)  # type: ignore[arg-type]
        if (self.path / _CANCELLED).exists():
            return Record(state=JobState.CANCELLED.name, **known)  # type: ignore[arg-type]
        return None

    def remove(self) -> None:
        if self.path.is_symlink():
            shutil.rmtree(self.path.resolve(), ignore_errors=True)
            self.path.unlink()
        else:
            shutil.rmtree(self.path, ignore_errors=True)

    def _job(self) -> dict[str, Any]:
        return read_json(self.path / _JOB) or {}

    def _text(self, name: str) -> str:
        try:
            return (self.path / name).read_text()
        except (FileNotFoundError, NotADirectoryError):
            return ""


def _facts(job: Job) -> dict[str, Any]:
    return {"labels": dict(job.labels), "memory_bytes": job.resources.memory_bytes, "requeue": job.requeue}
