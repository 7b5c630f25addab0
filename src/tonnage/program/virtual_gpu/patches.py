"""Python-level parts of torch that look for a GPU, start processes or write files."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import data

from tonnage.program.batch_size import BatchSize
from tonnage.program.virtual_gpu.device import DeviceMode
from tonnage.program.virtual_gpu.errors import Unsupported
from tonnage.program.virtual_gpu.loop import Loop
from tonnage.program.virtual_gpu.recorder import Recorder


def install(mode: DeviceMode, loop: Loop, recorder: Recorder, batch: BatchSize) -> None:
    _keep_mode_in_backward(mode, loop)
    _checkpoints_compare_shapes()
    _optimizers_as_on_cuda()
    _libraries_as_on_cuda()
    torch.set_default_device = mode.set_default_device
    torch.get_default_device = lambda: mode.default_device or torch.device("cpu")
    _no_compilation(recorder)
    _storage(recorder)
    _no_extensions()
    _load_to_host()
    _data_loading(loop, batch)


def _keep_mode_in_backward(mode: DeviceMode, loop: Loop) -> None:
    """`loss.backward()` is itself a torch function, inside which the mode is off; checkpointed code needs it on."""
    graph: Any = importlib.import_module("torch.autograd.graph")
    original = graph._engine_run_backward

    def run(*args: Any, **kwargs: Any) -> Any:
        loop.before_backward()
        if mode in torch.overrides._get_current_function_mode_stack():
            return original(*args, **kwargs)
        with mode:
            return original(*args, **kwargs)

    autograd: Any = torch.autograd
    graph._engine_run_backward = autograd._engine_run_backward = run


def _checkpoints_compare_shapes() -> None:
    """A recomputed tensor is compared with the saved one. Their device may look different, since one of the two may be
    described inside a torch function, where it is not pretended."""
    checkpoint: Any = importlib.import_module("torch.utils.checkpoint")
    checks = checkpoint._allowed_determinism_checks_to_fns
    checks[checkpoint._DEFAULT_DETERMINISM_MODE] = lambda tensor: {"shape": tensor.shape, "dtype": tensor.dtype}


def _optimizers_as_on_cuda() -> None:
    foreach: Any = importlib.import_module("torch.utils._foreach_utils")
    devices = lambda *_: ["cuda", "cpu"]  # noqa: E731
    cuda_only = lambda *_: ["cuda"]  # noqa: E731
    foreach._get_foreach_kernels_supported_devices = cuda_only
    foreach._get_fused_kernels_supported_devices = devices
    for name in ("torch.optim.optimizer", "torch.nn.utils.clip_grad"):
        module: Any = importlib.import_module(name)
        for attribute, answer in (
            ("_get_foreach_kernels_supported_devices", cuda_only),
            ("_get_fused_kernels_supported_devices", devices),
        ):
            if hasattr(module, attribute):
                setattr(module, attribute, answer)


def _libraries_as_on_cuda() -> None:
    cudnn: Any = torch.backends.cudnn
    cudnn.is_available = lambda: True
    cudnn.version = lambda: 91500
    cudnn.is_acceptable = lambda tensor: tensor.is_cuda and tensor.dtype in (
        torch.float16, torch.bfloat16, torch.float32, torch.float64,
    )  # fmt: skip
    torch.backends.cuda.is_built = lambda: True
    torch._C._has_cuda = True  # type: ignore[attr-defined]


def _no_compilation(recorder: Recorder) -> None:
    def compile(model: Any = None, **kwargs: Any) -> Any:
        recorder.warn("torch.compile was ignored: the program was followed in eager mode, a compiled one may need less")
        if model is None:
            return lambda function: compile(function, **kwargs)
        return model

    torch.compile = compile  # type: ignore[assignment]
    torch.nn.Module.compile = lambda self, *args, **kwargs: compile(self)  # type: ignore[method-assign]


def without_compiler() -> None:
    """Functions marked "not to be compiled" import the whole compiler at their first call: more than a second. They get
    a stand-in instead, which makes way for the real module as soon as anything else of it is wanted."""
    sys.modules["torch._dynamo"] = _CompilerStandIn("torch._dynamo")
    # Should it be imported after all, it must find what a CUDA build has.
    torch._C._cuda_getCurrentRawStream = lambda device: 0  # type: ignore[attr-defined]


class _CompilerStandIn(types.ModuleType):
    """What torch itself calls of its compiler when nothing is compiled."""

    @staticmethod
    def disable(fn: Any = None, recursive: bool = True, **_: Any) -> Any:  # noqa: ARG004
        return fn if fn is not None else lambda function: function

    allow_in_graph = assume_constant_result = disallow_in_graph = forbid_in_graph = staticmethod(lambda fn: fn)
    graph_break = mark_static_address = mark_static = mark_dynamic = reset = staticmethod(lambda *args, **kwargs: None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # somebody looks at all modules; that is no use of this one
            raise AttributeError(name)
        if sys.modules.get("torch._dynamo") is self:
            del sys.modules["torch._dynamo"]
        return getattr(importlib.import_module("torch._dynamo"), name)


def _storage(recorder: Recorder) -> None:
    """`torch.save` writes nothing; its bytes are counted."""

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
        with torch._C.DisableTorchFunction():
            recorder.storage_bytes = max(recorder.storage_bytes, _bytes_of(obj, set()))
        recorder.checkpoints += 1
        if isinstance(f, str | os.PathLike):
            open(f, "wb").close()  # goes to the scratch layer: later code may look for the file

    torch.save = save
    if importlib.util.find_spec("safetensors"):
        _storage_of_safetensors(recorder)


def _storage_of_safetensors(recorder: Recorder) -> None:
    """Its files are written by compiled code, past the scratch layer."""
    module: Any = importlib.import_module("safetensors.torch")

    def save_file(tensors: dict[str, torch.Tensor], filename: Any, metadata: Any = None) -> None:  # noqa: ARG001
        with torch._C.DisableTorchFunction():
            recorder.storage_bytes = max(recorder.storage_bytes, _bytes_of(tensors, set()))
        recorder.checkpoints += 1
        open(filename, "wb").close()

    module.save_file = save_file


def _no_extensions() -> None:
    """CUDA code that is compiled at run time cannot be followed."""

    def refuse(name: str = "", *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
        raise Unsupported(f"the custom CUDA extension {name!r} cannot run on the virtual GPU")

    finder = _Replaced("torch.utils.cpp_extension", {"load": refuse, "load_inline": refuse})
    sys.meta_path.insert(0, finder)


class _Replaced(importlib.abc.MetaPathFinder):
    """Replaces functions of a module when, and only if, the program imports it."""

    def __init__(self, name: str, functions: dict[str, Any]) -> None:
        self._name = name
        self._functions = functions

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:  # noqa: ARG002
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        vars(importlib.import_module(name)).update(self._functions)
        return importlib.util.find_spec(name)


def _bytes_of(value: Any, seen: set[int]) -> int:
    """Bytes of all distinct storages that a pickle of this value would hold."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        key = value.untyped_storage()._cdata
        if key in seen:
            return 0
        seen.add(key)
        return value.untyped_storage().nbytes()
    if isinstance(value, torch.nn.Module):
        return _bytes_of(dict(value.state_dict()), seen)
    if isinstance(value, dict):
        return sum(_bytes_of(v, seen) for v in value.values())
    if isinstance(value, list | tuple | set):
        return sum(_bytes_of(v, seen) for v in value)
    return 0


def _load_to_host() -> None:
    original = torch.load

    def load(f: Any, map_location: Any = None, **kwargs: Any) -> Any:
        target = map_location
        loaded = original(f, map_location="cpu", **kwargs)
        if target is None or not str(target).startswith("cuda"):
            return loaded
        return _moved(loaded)

    torch.load = load


def _moved(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("cuda")
    if isinstance(value, dict):
        return type(value)((k, _moved(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return type(value)(_moved(v) for v in value)
    return value


def _data_loading(loop: Loop, batch: BatchSize) -> None:
    """Batches are loaded in this process: the same data, no workers to clean up, no pinned memory to ask for."""
    loader: Any = data.DataLoader
    original: Callable[[Any], Any] = loader._get_iterator
    initialise = loader.__init__

    @functools.wraps(initialise)
    def init(self: Any, dataset: Any, batch_size: Any = 1, *args: Any, **kwargs: Any) -> None:
        initialise(self, dataset, batch.for_loader(batch_size), *args, **kwargs)

    loader.__init__ = init

    def get_iterator(self: Any) -> Any:
        workers, pinned = self.num_workers, self.pin_memory
        object.__setattr__(self, "num_workers", 0)
        object.__setattr__(self, "pin_memory", False)
        prefetch, timeout = self.prefetch_factor, self.timeout
        self.timeout = 0
        try:
            return _Limited(original(self), loop)
        finally:
            object.__setattr__(self, "num_workers", workers)
            object.__setattr__(self, "pin_memory", pinned)
            self.prefetch_factor, self.timeout = prefetch, timeout

    loader._get_iterator = get_iterator
    loader.check_worker_number_rationality = lambda self: None


class _Limited:
    """A data loader's iterator that ends early: an epoch during a capture is as long as the trace needs it."""

    def __init__(self, iterator: Any, loop: Loop) -> None:
        self._iterator = iterator
        self._allowance = loop.batches()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._allowance.take()
        return next(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def __len__(self) -> int:
        return len(self._iterator)
