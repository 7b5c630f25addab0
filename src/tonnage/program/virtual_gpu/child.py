"""The process in which a user's program runs against the virtual GPU. Started by `tonnage.program.capture`.

It leaves either `result.trace` or `failure.json` in the folder of the request.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import torch

from tonnage.program.batch_size import BatchSize
from tonnage.program.trace import Origin
from tonnage.program.trace_file import write_trace
from tonnage.program.virtual_gpu import (
    autocast,
    composites,
    cuda_api,
    data_dependent,
    distributed,
    failures,
    patches,
    reading,
    recurrent,
    run,
    saved_files,
    tensor_types,
)
from tonnage.program.virtual_gpu.device import DeviceMode
from tonnage.program.virtual_gpu.files import ScratchLayer
from tonnage.program.virtual_gpu.loop import EnoughSeen, Loop
from tonnage.program.virtual_gpu.modules import ModuleStack
from tonnage.program.virtual_gpu.operators import OperatorMode
from tonnage.program.virtual_gpu.recorder import Recorder

_ = data_dependent, reading  # their rules register themselves


class VirtualGpu:
    """Everything that must be in place before the user's first line runs."""

    def __init__(self, steps: int, gpu: dict[str, Any], batch: BatchSize | None = None) -> None:
        patches.without_compiler()
        patches.quick_checks()
        self.recorder = Recorder()
        self.modules = ModuleStack(self.recorder)
        self.operators = OperatorMode(self.recorder, self.modules)
        self.device = DeviceMode(self.operators)
        self.loop = Loop(self.operators, self.modules, steps)
        self.batch = batch or BatchSize(None)
        self.autocast = autocast.Autocast(self.operators.is_virtual)
        self._libraries = composites.install()
        self.autocast.install()
        cuda_api.CudaApi(self.recorder, gpu, self.loop.after_replay).install()
        tensor_types.install(self.device)
        self.modules.install()
        self.loop.install()
        recurrent.install()
        patches.install(self.device, self.loop, self.recorder, self.batch)
        saved_files.install(self.device, self.recorder)
        distributed.install(self.recorder)
        self._follow_threads()

    def __enter__(self) -> VirtualGpu:
        self.operators.__enter__()
        self.device.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self.device.__exit__(*details)
        self.operators.__exit__(*details)

    def _follow_threads(self) -> None:
        """The modes belong to a thread; prefetching threads of the program need them as well."""
        original = threading.Thread.run

        def follow(thread: threading.Thread) -> None:
            with self.operators, self.device:
                original(thread)

        threading.Thread.run = follow  # type: ignore[method-assign]

    def origin(self, request: dict[str, Any]) -> Origin:
        cudnn: Any = torch.backends.cudnn
        return Origin(
            program=request["name"],
            kind=request["kind"],
            mode="training" if self.loop.training else "inference",
            steps=self.recorder.steps,
            batch=self.batch.wanted or self.batch.found,
            torch_version=torch.__version__,
            captured_on=request["gpu"]["name"],
            allocator_settings=os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or "",
            cudnn_benchmark=bool(cudnn.benchmark),
            cudnn_allow_tf32=bool(cudnn.allow_tf32),
            matmul_allow_tf32=bool(torch.backends.cuda.matmul.allow_tf32),
            deterministic=torch.are_deterministic_algorithms_enabled() or bool(cudnn.deterministic),
            storage_bytes=self.recorder.storage_bytes,
            checkpoints=self.recorder.checkpoints,
            parameter_count=self.loop.parameter_count,
            epoch_steps=self.loop.epoch_steps,
            warnings=tuple(self.recorder.warnings),
        )


def main() -> None:
    path = sys.argv[1]
    request = json.loads(Path(path).read_text())
    folder = Path(request["folder"])
    try:
        virtual = VirtualGpu(request["steps"], request["gpu"], BatchSize(request["batch"], request["batch_option"]))
        virtual.loop.on_deaf = lambda: _leave(virtual, request)
        ScratchLayer(folder).install()
        _follow(virtual, request)
        _leave(virtual, request)
    except BaseException as error:  # whatever it was, it is told in one sentence
        _begin_again_as_launched(error, path)
        message, hint = failures.explain(error, request)
        (folder / "failure.json").write_text(json.dumps({"message": message, "hint": hint}))
        if not isinstance(error, failures.Refusal):
            import traceback

            traceback.print_exc()
    _exit()


def _leave(virtual: VirtualGpu, request: dict[str, Any]) -> None:
    """Write the trace and go, wherever the program is."""
    failures.check(virtual, request)
    write_trace(virtual.recorder.trace(virtual.origin(request)), Path(request["folder"], "result.trace"))
    _exit()


def _exit() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # no clean-up of the program may keep the process alive


def _begin_again_as_launched(error: BaseException, path: str) -> None:
    """A program that asks for its rank without checking expects to be started by torchrun: as one of one, then."""
    missing = error.args[0] if isinstance(error, KeyError) and error.args else None
    if missing in distributed.LAUNCHER_VARIABLES and missing not in os.environ:
        environment = {**distributed.LAUNCHER_VARIABLES, **os.environ}
        os.execve(sys.executable, [sys.executable, "-m", "tonnage.program.virtual_gpu.child", path], environment)


def _follow(virtual: VirtualGpu, request: dict[str, Any]) -> None:
    """Run the program until it ends or has shown enough."""
    try:
        with virtual:
            run.program(virtual, request)
    except EnoughSeen:
        pass
    except SystemExit as end:
        if end.code not in (None, 0) and not virtual.loop.enough:
            raise
    except Exception as error:
        # What comes after the loop is not worth failing for: the epochs were cut short, results may be missing.
        if not virtual.loop.enough:
            raise
        reason, _ = failures.explain(error, request)
        virtual.recorder.warn(
            f"after {virtual.recorder.steps} steps the program failed, what follows was not seen: {reason}"
        )
    virtual.loop.close()


if __name__ == "__main__":
    main()
