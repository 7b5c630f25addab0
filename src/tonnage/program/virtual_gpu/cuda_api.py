"""`torch.cuda` as it would answer on the GPU that is pretended to be there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from tonnage.program.virtual_gpu.recorder import Recorder


class Stream:
    """A CUDA stream that does nothing: one virtual stream is enough for memory."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _ = args, kwargs
        self.device = torch.device("cuda", 0)
        self.device_index, self.device_type, self.stream_id, self.cuda_stream, self.priority = 0, 1, 0, 0, 0

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def synchronize(self) -> None:
        return

    wait_event = wait_stream = lambda self, other: None

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *details: object) -> None:
        return


class Event:
    """A CUDA event; times are the host's and mean nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _ = args, kwargs
        self._seconds = 0.0

    def record(self, stream: Stream | None = None) -> None:  # noqa: ARG002
        self._seconds = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        return max((end._seconds - self._seconds) * 1e3, 1e-3)

    def query(self) -> bool:
        return True

    wait = synchronize = lambda self, *args: None


class CudaGraph:
    """A CUDA graph: what is captured runs once, eagerly; replays need the memory of the capture and nothing more."""

    on_replay: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _ = args, kwargs

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        return

    capture_end = reset = enable_debug_mode = debug_dump = instantiate = register_generator_state = capture_begin

    def replay(self) -> None:
        type(self).on_replay()

    def pool(self) -> tuple[int, int]:
        return (0, 1)


class CudaApi:
    """Answers for one GPU; installs itself over `torch.cuda`."""

    def __init__(self, recorder: Recorder, gpu: dict[str, Any], on_replay: Callable[[], None] = lambda: None) -> None:
        self._recorder = recorder
        CudaGraph.on_replay = staticmethod(on_replay)
        self._gpu = gpu
        self._stream = Stream()
        self._generator_state = torch.get_rng_state()
        self._peak_floor = 0

    def properties(self, device: Any = None) -> Any:  # noqa: ARG002
        major, minor = self._gpu["compute_capability"]
        return SimpleNamespace(
            name=self._gpu["name"], major=major, minor=minor, total_memory=self._gpu["memory_bytes"],
            multi_processor_count=self._gpu["sms"], warp_size=32, max_threads_per_multi_processor=2048,
            regs_per_multiprocessor=65536, L2_cache_size=self._gpu["l2_bytes"], is_integrated=0, is_multi_gpu_board=0,
            shared_memory_per_block=49152, shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472,
            gcnArchName="", uuid="00000000-0000-0000-0000-000000000000",
        )  # fmt: skip

    def install(self) -> None:
        cuda: Any = torch.cuda
        major, minor = self._gpu["compute_capability"]
        answers: dict[str, Any] = {
            "is_available": True, "device_count": 1, "current_device": 0, "is_initialized": True, "_is_compiled": True,
            "get_device_name": self._gpu["name"], "get_device_capability": (major, minor),
            "init": None, "_lazy_init": None, "synchronize": None, "set_device": None, "ipc_collect": None,
            "manual_seed": None, "manual_seed_all": None, "seed": None, "seed_all": None, "initial_seed": 0,
            "current_stream": self._stream, "default_stream": self._stream, "set_stream": None,
            "set_per_process_memory_fraction": None, "get_arch_list": [f"sm_{major}{minor}"], "utilization": 100,
            "memory_usage": 50, "temperature": 50, "power_draw": 300_000, "clock_rate": 1500,
            "set_rng_state": None, "set_rng_state_all": None, "is_current_stream_capturing": False,
            "can_device_access_peer": False, "cudart": None, "reset_accumulated_memory_stats": None,
            "get_gencode_flags": "", "_exchange_device": 0, "_maybe_exchange_device": 0,
        }  # fmt: skip
        for name, answer in answers.items():
            setattr(cuda, name, _always(answer))
        cuda.get_device_properties = self.properties
        # Parts before Ampere emulate it, which torch counts unless asked not to.
        cuda.is_bf16_supported = lambda including_emulation=True: bool(including_emulation) or major >= 8
        cuda.get_rng_state = lambda device="cuda": self._generator_state.clone()
        cuda.get_rng_state_all = lambda: [self._generator_state.clone()]
        for name in ("get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all"):
            setattr(cuda.random, name, getattr(cuda, name))
        cuda.Stream = cuda.ExternalStream = Stream
        cuda.Event = Event
        cuda.stream = self._stream_context
        cuda.StreamContext = self._stream_context
        cuda.device = _NoDevice
        cuda.device_of = _NoDevice
        cuda._DeviceGuard = _NoDevice
        cuda._device = _NoDevice
        cuda.CUDAGraph = cuda.graphs.CUDAGraph = CudaGraph
        cuda.graph = cuda.graphs.graph = _Region
        cuda.graph_pool_handle = cuda.graphs.graph_pool_handle = lambda: (0, 1)
        cuda.make_graphed_callables = cuda.graphs.make_graphed_callables = lambda callables, *args, **kwargs: callables
        self._install_memory(cuda)
        self._install_accelerator(cuda)
        torch.version.cuda = "13.0"
        torch._C._cuda_getDeviceCount = lambda: 1  # type: ignore[attr-defined]
        torch._C._cuda_getDevice = lambda: 0  # type: ignore[attr-defined]
        torch.Generator = _Generator  # type: ignore[misc, assignment]

    def _install_memory(self, cuda: Any) -> None:
        recorder = self._recorder
        allocated = lambda device=None: recorder.allocated_bytes  # noqa: E731
        peak = lambda device=None: recorder.peak_bytes  # noqa: E731
        reset = lambda device=None: recorder.reset_peak()  # noqa: E731
        memory: Any = torch.cuda.memory
        for module in (cuda, memory):
            module.memory_allocated = module.memory_reserved = module.memory_cached = allocated
            module.max_memory_allocated = module.max_memory_reserved = module.max_memory_cached = peak
            module.reset_peak_memory_stats = module.reset_max_memory_allocated = module.reset_max_memory_cached = reset
            module.empty_cache = recorder.empty_cache
            module.mem_get_info = lambda device=None: (
                max(self._gpu["memory_bytes"] - recorder.allocated_bytes, 0), self._gpu["memory_bytes"]
            )  # fmt: skip
            module.memory_stats = self._statistics
            module.memory_summary = lambda *args, **kwargs: ""
            module.memory_snapshot = lambda *args, **kwargs: []

    def _install_accelerator(self, cuda: Any) -> None:
        """`torch.accelerator`, which asks the build instead of `torch.cuda`."""
        accelerator: Any = torch.accelerator
        answers: dict[str, Any] = {
            "is_available": True, "device_count": 1, "current_accelerator": torch.device("cuda"), "synchronize": None,
            "current_device_index": 0, "current_device_idx": 0, "set_device_index": None, "set_device_idx": None,
            "current_stream": self._stream, "set_stream": None,
        }  # fmt: skip
        for name, answer in answers.items():
            setattr(accelerator, name, _always(answer))
        accelerator.device_index = _NoDevice
        for name in (
            "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats",
            "reset_peak_memory_stats", "reset_accumulated_memory_stats", "empty_cache",
        ):  # fmt: skip
            setattr(accelerator, name, getattr(cuda, name))
        accelerator.get_memory_info = cuda.mem_get_info
        core: Any = torch._C
        core._accelerator_getAccelerator = core._get_accelerator = _always(torch.device("cuda"))
        core._accelerator_getDeviceIndex = core._accelerator_exchangeDevice = core._accelerator_maybeExchangeDevice = (
            _always(0)
        )
        core._accelerator_setDeviceIndex = core._accelerator_setStream = core._accelerator_synchronizeDevice = _always(
            None
        )
        core._accelerator_getStream = _always(self._stream)
        generic: Any = torch
        generic.Stream, generic.Event = Stream, Event

    def _statistics(self, device: Any = None) -> dict[str, int]:  # noqa: ARG002
        current, peak = self._recorder.allocated_bytes, self._recorder.peak_bytes
        return {
            f"{kind}_bytes.{pool}.{which}": value
            for kind in ("allocated", "reserved", "active", "requested")
            for pool in ("all", "large_pool", "small_pool")
            for which, value in (("current", current), ("peak", peak), ("allocated", peak), ("freed", 0))
        } | {"num_alloc_retries": 0, "num_ooms": 0}

    @contextlib.contextmanager
    def _stream_context(self, stream: Stream | None) -> Iterator[Stream | None]:
        yield stream


class _NoDevice(contextlib.ContextDecorator):
    """`with torch.cuda.device(0)`: there is only one."""

    def __init__(self, device: Any = None) -> None:
        self.idx = 0
        _ = device

    def __enter__(self) -> _NoDevice:
        return self

    def __exit__(self, *details: object) -> None:
        return


class _Region(contextlib.ContextDecorator):
    """`with torch.cuda.graph(g)`: what is inside runs as usual."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _ = args, kwargs

    def __enter__(self) -> None:
        return

    def __exit__(self, *details: object) -> None:
        return


def _always(answer: Any) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
        return answer

    return function


_TorchGenerator = torch.Generator


class _GeneratorType(type):
    def __call__(cls, device: Any = "cpu") -> Any:  # noqa: ARG002
        return _TorchGenerator("cpu")

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _TorchGenerator)


class _Generator(metaclass=_GeneratorType):
    """Random numbers of the virtual GPU are never drawn; a host generator keeps seeds and states."""
