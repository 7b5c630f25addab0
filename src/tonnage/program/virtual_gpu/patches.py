"""Python-level parts of torch that look for a GPU, start processes or write files."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import data
from torch.utils._python_dispatch import _disable_current_modes

from tonnage.program.batch_size import BatchSize
from tonnage.program.virtual_gpu import host
from tonnage.program.virtual_gpu.device import DeviceMode, handles
from tonnage.program.virtual_gpu.errors import Unsupported
from tonnage.program.virtual_gpu.loop import Loop
from tonnage.program.virtual_gpu.recorder import Recorder
from tonnage.program.virtual_gpu.saved_files import bytes_of, write_safetensors


def install(mode: DeviceMode, loop: Loop, recorder: Recorder, batch: BatchSize) -> None:
    _keep_mode_in_backward(mode, loop)
    _checkpoints_compare_shapes()
    _optimizers_as_on_cuda()
    _libraries_as_on_cuda()
    torch.set_default_device = mode.set_default_device
    torch.get_default_device = lambda: mode.default_device or torch.device("cpu")
    _no_compilation(recorder)
    if importlib.util.find_spec("safetensors"):
        _storage_of_safetensors(recorder)
    _no_extensions()
    _saved_tensors_hooks(mode)
    _one_gpu_in_parallel()
    _plain_exports(mode)
    _no_scripts()
    _wrappers_on_meta()
    _addresses_of_storages(mode)
    _numbered_devices()
    _quick_initialisation()
    _fused_flex_attention()
    _unsharded()
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


def _saved_tensors_hooks(mode: DeviceMode) -> None:
    """They are called from inside torch functions, where the mode is off, and move tensors to the host and back."""
    hooks: Any = torch.autograd.graph.saved_tensors_hooks
    original = hooks.__init__

    def with_mode(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(hook)
        def run(value: Any) -> Any:
            if mode in torch.overrides._get_current_function_mode_stack():
                return hook(value)
            with mode:
                return hook(value)

        return run

    def init(self: Any, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        original(self, with_mode(pack_hook), with_mode(unpack_hook))

    hooks.__init__ = init


def _one_gpu_in_parallel() -> None:
    """`nn.DataParallel` on one GPU scatters to it, gathers from it, and copies nothing that is there already."""
    core: Any = torch._C
    core._scatter = lambda tensor, *_: [tensor.to("cuda")]
    core._gather = lambda tensors, dim, destination: torch.cat(list(tensors), dim)
    core._broadcast = lambda tensor, devices: [tensor.to("cuda") for _ in devices]
    core._broadcast_coalesced = lambda tensors, devices, size: [[t.to("cuda") for t in tensors] for _ in devices]
    torch.Tensor.record_stream = lambda self, stream: None  # type: ignore[method-assign]


def _numbered_devices() -> None:
    """`module.to(0)` asks the build of torch for its accelerator."""
    functions: Any = torch._C._nn
    parse = functions._parse_to

    def parse_to(*args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is int:
            args = (torch.device("cuda", args[0]), *args[1:])
        if type(kwargs.get("device")) is int:
            kwargs["device"] = torch.device("cuda", kwargs["device"])
        return parse(*args, **kwargs)

    functions._parse_to = parse_to
    # torch hands the mode what it finds under the name; the device is translated later, for each tensor.
    handles(parse_to)(lambda mode, func, args, kwargs: func(*args, **kwargs))


def _quick_initialisation() -> None:
    """Truncated normal numbers are drawn until all fit; where none are drawn (see `host`), that would be for ever."""
    module: Any = torch.nn.init
    original = module._no_grad_trunc_normal_

    @functools.wraps(original)
    def trunc_normal(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return tensor if tensor.numel() >= host.LARGE else original(tensor, *args, **kwargs)

    module._no_grad_trunc_normal_ = trunc_normal


def _fused_flex_attention() -> None:
    """Flex attention is compiled to a fused kernel, which needs the memory of the other fused kernels."""

    def flex_attention(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Any = None, block_mask: Any = None,
        scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, *args: Any, **kwargs: Any,
    ) -> Any:  # fmt: skip
        _ = score_mod, block_mask, args
        attention = torch.nn.functional.scaled_dot_product_attention
        output = attention(query, key, value, scale=scale, enable_gqa=enable_gqa)
        sums = torch.empty(query.shape[:-1], dtype=torch.float32, device=query.device) if return_lse else None
        if kwargs.get("return_aux") is not None:
            auxiliary: Any = importlib.import_module("torch.nn.attention.flex_attention")
            wants = kwargs["return_aux"]
            lse = torch.empty(query.shape[:-1], dtype=torch.float32, device=query.device)
            return output, auxiliary.AuxOutput(
                lse=lse if wants.lse else None, max_scores=torch.empty_like(lse) if wants.max_scores else None
            )
        return (output, sums) if return_lse else output

    _replace("torch.nn.attention.flex_attention", {"flex_attention": lambda original: flex_attention})


def _unsharded() -> None:
    """`fully_shard` makes distributed tensors, which do not mix with meta tensors. One process has nothing to shard."""

    def fully_shard(module: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            raise Unsupported("fully_shard over several GPUs cannot be followed; FullyShardedDataParallel can")
        for one in module if isinstance(module, list) else [module]:
            one.__class__ = type(f"FSDP{type(one).__name__}", (_Unsharded, type(one)), {})
        return module

    _replace("torch.distributed.fsdp", {"fully_shard": lambda original: fully_shard})


class _Unsharded:
    """The methods that `fully_shard` adds to a module."""

    def _nothing(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        return

    unshard = reshard = set_modules_to_forward_prefetch = set_modules_to_backward_prefetch = _nothing
    set_requires_gradient_sync = set_requires_all_reduce = set_reshard_after_backward = set_is_last_backward = _nothing
    set_unshard_in_backward = set_reduce_scatter_divide_factor = set_post_optim_event = _nothing


def _plain_exports(mode: DeviceMode) -> None:
    """Exporting needs torch undisguised."""

    def undisguised(original: Any) -> Any:
        @functools.wraps(original)
        def export(*args: Any, **kwargs: Any) -> Any:
            mode.__exit__(None, None, None)
            try:
                with _disable_current_modes():
                    return original(*args, **kwargs)
            finally:
                mode.__enter__()

        return export

    _replace("torch.export", {"export": undisguised})


def _no_scripts() -> None:
    """TorchScript keeps tensors of its own, which do not move to the virtual GPU with their module. As with
    `PYTORCH_JIT=0`, what would be scripted or traced runs as it is written."""
    jit: Any = torch.jit
    importlib.import_module("torch.jit._state").disable()
    jit.freeze = jit.optimize_for_inference = lambda module, *_, **__: module
    jit.save = lambda module, file, **_: torch.save(module, file)
    nn.Module.save = lambda module, file, **_: torch.save(module, file)  # type: ignore[attr-defined]

    def load(file: Any, map_location: Any = None, **_: Any) -> Any:
        if zipfile.is_zipfile(file):  # what the program saved itself is none
            raise Unsupported("a file with compiled TorchScript cannot be followed")
        return torch.load(file, map_location, weights_only=False)

    jit.load = load


def _wrappers_on_meta() -> None:
    """Subclasses that wrap tensors of the virtual GPU (nested ones) ask these for their device, which is pretended;
    autograd would look for its streams."""
    tensor: Any = torch.Tensor
    original = tensor._make_wrapper_subclass

    def moved(value: Any) -> Any:
        return torch.device("meta") if isinstance(value, torch.device) and value.type == "cuda" else value

    def make(kind: Any, *args: Any, **kwargs: Any) -> Any:
        return original(kind, *map(moved, args), **{name: moved(value) for name, value in kwargs.items()})

    tensor._make_wrapper_subclass = staticmethod(make)


def _addresses_of_storages(mode: DeviceMode) -> None:
    """Programs find shared weights by the addresses of their storages, which are all zero on meta."""
    storage: Any = torch.UntypedStorage
    original = storage.data_ptr
    storage.data_ptr = lambda this: original(this) or mode.operators.address(this._cdata)


def _checkpoints_compare_shapes() -> None:
    """A recomputed tensor is compared with the saved one. Their device may look different, since one of the two may be
    described inside a torch function, where it is not pretended."""
    checkpoint: Any = importlib.import_module("torch.utils.checkpoint")
    checks = checkpoint._allowed_determinism_checks_to_fns
    checks[checkpoint._DEFAULT_DETERMINISM_MODE] = lambda tensor: {"shape": tensor.shape, "dtype": tensor.dtype}


def _optimizers_as_on_cuda() -> None:
    foreach: Any = importlib.import_module("torch.utils._foreach_utils")
    devices = lambda *_: ["cuda", "cpu"]  # noqa: E731
    cuda_only = lambda *_: ["cuda", "meta"]  # noqa: E731 - torch groups tensors in C++, where the GPU is still meta
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


def quick_checks() -> None:
    """`torch._check` imports symbolic algebra, half a second of it, to look at a plain boolean."""
    original = torch._check_with

    def check(error_type: Any, cond: Any, message: Any) -> None:
        if cond is not True:
            original(error_type, cond, message)

    torch._check_with = check


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


def _storage_of_safetensors(recorder: Recorder) -> None:
    """Its files are written by compiled code, past the scratch layer."""
    module: Any = importlib.import_module("safetensors.torch")

    def save_file(tensors: dict[str, torch.Tensor], filename: Any, metadata: Any = None) -> None:
        with torch._C.DisableTorchFunction():
            recorder.storage_bytes = max(recorder.storage_bytes, bytes_of(tensors, set()))
            write_safetensors(filename, tensors, metadata)
        recorder.checkpoints += 1

    module.save_file = save_file


def _no_extensions() -> None:
    """CUDA code that is compiled at run time cannot be followed."""

    def refuse(name: str = "", *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
        raise Unsupported(f"the custom CUDA extension {name!r} cannot run on the virtual GPU")

    _replace("torch.utils.cpp_extension", dict.fromkeys(("load", "load_inline"), lambda original: refuse))


def _replace(name: str, functions: dict[str, Callable[[Any], Any]]) -> None:
    """Replace functions of a module now, or as soon as the program imports it. Each is made from what it replaces."""
    module = sys.modules.get(name)
    if module is None:
        sys.meta_path.insert(0, _Replaced(name, functions))
        return
    for function, make in functions.items():
        setattr(module, function, make(getattr(module, function, None)))


class _Replaced(importlib.abc.MetaPathFinder):
    """Replaces functions of a module when, and only if, the program imports it."""

    def __init__(self, name: str, functions: dict[str, Callable[[Any], Any]]) -> None:
        self._name = name
        self._functions = functions

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:  # noqa: ARG002
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        loader: Any = getattr(spec := importlib.util.find_spec(name), "loader", None)
        original = loader.exec_module

        def run(module: types.ModuleType) -> None:
            original(module)
            _replace(self._name, self._functions)

        loader.exec_module = run
        return spec


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
            return _Limited(original(self), loop, _length(self), pinned)
        finally:
            object.__setattr__(self, "num_workers", workers)
            object.__setattr__(self, "pin_memory", pinned)
            self.prefetch_factor, self.timeout = prefetch, timeout

    loader._get_iterator = get_iterator
    loader.check_worker_number_rationality = lambda self: None


def _length(loader: Any) -> int:
    """Batches in an epoch; 0 where nobody knows."""
    try:
        return len(loader)
    except TypeError:
        return 0


class _Limited:
    """A data loader's iterator that ends early: an epoch during a capture is as long as the trace needs it."""

    def __init__(self, iterator: Any, loop: Loop, length: int, pinned: bool) -> None:
        self._iterator = iterator
        self._allowance = loop.batches(length)
        self._recorder = loop.recorder
        self._pin = loop.operators.pinned.add_all if pinned else lambda batch: None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._allowance.take()
        with self._recorder.aside():
            batch = next(self._iterator)
        self._pin(batch)
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def __len__(self) -> int:
        return len(self._iterator)
