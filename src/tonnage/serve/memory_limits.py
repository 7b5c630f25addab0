"""Refuses models that would not fit, before they are loaded: what their instances need by our own estimate, against what
is free where they shall run."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tonnage.serve.configuration import ModelConfiguration, without_labels
from tonnage.serve.errors import NoRoom
from tonnage.serve.instance_process import InstancePlace
from tonnage.serve.main_memory import GpuMemory, free_main_bytes, gpu_memory
from tonnage.serve.memory_needs import Needs, Question, weights_on_disk
from tonnage.units import format_bytes

log = logging.getLogger("tonnage.serve")
_ESTIMATE_SECONDS = 120.0
_MOST_REMEMBERED = 256

Device: TypeAlias = "int | None"  # a GPU, or the processor


async def ask_apart(question: Question) -> Needs:
    """In a process of its own. One that fails or takes too long leaves only the weights."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tonnage.serve.memory_needs"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = await asyncio.to_thread(process.communicate, pickle.dumps(question), _ESTIMATE_SECONDS)
        return Needs(**json.loads(output))
    except (subprocess.TimeoutExpired, ValueError):
        weights = weights_on_disk(Path(question.path))
        return Needs(total_bytes=weights, weights_bytes=weights, problem="the estimate did not come to an end")
    finally:
        process.kill()
        process.wait()


@dataclass(slots=True, eq=False)
class Claim:
    """Memory that a version holds, or will when it is loaded."""

    bytes: dict[Device, int]
    owner: MemoryLimits
    is_loaded: bool = False

    def release(self) -> None:
        self.owner.claims.discard(self)


@dataclass(slots=True)
class MemoryLimits:
    """`limit_bytes` is for all models on the processor together; without it, what is free there counts."""

    limit_bytes: int | None = None
    ask: Callable[[Question], Awaitable[Needs]] = ask_apart
    free_main: Callable[[], int] = free_main_bytes
    gpu: Callable[[int], GpuMemory] = gpu_memory
    claims: set[Claim] = field(default_factory=set)
    _known: dict[object, Needs] = field(default_factory=dict)

    async def claim(self, configuration: ModelConfiguration, path: Path, places: Sequence[InstancePlace]) -> Claim:
        """Raises `NoRoom`. Whoever gets a claim releases it."""
        counts = Counter(place.gpu for place in places)
        weights = weights_on_disk(path)
        least = Needs(total_bytes=weights, weights_bytes=weights)
        for device, count in counts.items():
            self._check(configuration, device, count, least)  # cheap, and enough for what is far too large
        needs = {device: await self._needs(configuration, path, device) for device in counts}
        for device, count in counts.items():
            self._check(configuration, device, count, needs[device])
        found = Claim({device: count * needs[device].total_bytes for device, count in counts.items()}, self)
        self.claims.add(found)
        return found

    async def _needs(self, configuration: ModelConfiguration, path: Path, device: Device) -> Needs:
        """A model whose files have the sizes that they had before needs what it needed before: only its weights differ."""
        configuration = without_labels(configuration)
        gpu = "" if device is None else self.gpu(device).name
        files = tuple(sorted((each.name, each.stat().st_size) for each in path.parent.iterdir() if each.is_file()))
        key = (path.name, files, repr(configuration), gpu)
        if key not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = await self.ask(Question(path=str(path), configuration=configuration, gpu=gpu))
            _log(configuration.name, self._known[key])
        return self._known[key]

    def _check(self, configuration: ModelConfiguration, device: Device, count: int, needs: Needs) -> None:
        free, where = self._free(device)
        total = count * needs.total_bytes
        if total <= free:
            return
        parts = f"weights {format_bytes(needs.weights_bytes)}"
        parts += f", a batch of {needs.rows}" if needs.rows else ""
        each = f"{count} instances of {format_bytes(needs.total_bytes)}" if count > 1 else "one instance"
        raise NoRoom(
            f"{configuration.name} needs {format_bytes(total)} ({each}: {parts}), "
            f"but {format_bytes(free)} are left of {where}",
            "fewer instances or a smaller max_batch_size need less; so does unloading another model",
        )

    def _free(self, device: Device) -> tuple[int, str]:
        """What is left, and of what. Versions that are being loaded do not use yet what they will."""
        held = sum(claim.bytes.get(device, 0) for claim in self.claims)
        coming = sum(claim.bytes.get(device, 0) for claim in self.claims if not claim.is_loaded)
        if device is not None:
            gpu = self.gpu(device)
            free = min(gpu.free_bytes - coming, gpu.total_bytes - held)
            return max(free, 0), f"the {format_bytes(gpu.total_bytes)} of GPU {device}"
        free = self.free_main() - coming
        if self.limit_bytes is not None and self.limit_bytes - held < free:
            return max(self.limit_bytes - held, 0), f"the memory limit of {format_bytes(self.limit_bytes)}"
        return max(free, 0), "main memory"


def _log(name: str, needs: Needs) -> None:
    if needs.problem:
        log.info("only its weights are known", extra={"model": name, "reason": needs.problem})
