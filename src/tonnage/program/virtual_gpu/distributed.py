"""`torch.distributed` for one process that may believe it has peers.

Groups are torch's own fake ones, so `DistributedDataParallel` and the sharding wrappers run as they are and bring their
buckets with them; a collective allocates nothing and ends at once. A program that asks for a world of several processes
is followed as its first rank, which is what one GPU of that world needs.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from typing import Any

import torch

from tonnage.program.virtual_gpu.recorder import Recorder

LAUNCHER_VARIABLES = {
    "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
}  # fmt: skip


def install(recorder: Recorder) -> None:
    _spawn_in_this_process()
    distributed: Any = torch.distributed
    if not distributed.is_available():
        return
    c10d: Any = importlib.import_module("torch.distributed.distributed_c10d")
    original = c10d.init_process_group
    chosen = {"backend": "nccl"}

    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        """Nobody is waited for: rank and size are what the program says, or one of one."""
        fake: Any = importlib.import_module("torch.testing._internal.distributed.fake_pg")
        names = ("init_method", "timeout", "world_size", "rank", "store", "group_name")
        kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
        size = _positive(kwargs.get("world_size"), "WORLD_SIZE", 1)
        rank = _positive(kwargs.get("rank"), "RANK", 0)
        if size > 1:
            recorder.warn(f"the program was followed as rank {rank} of {size} processes; this is the memory of one GPU")
        chosen["backend"] = str(backend or "nccl").split(":")[-1]
        original("fake", store=fake.FakeStore(), rank=rank, world_size=size)

    replacements: dict[str, Any] = {
        "init_process_group": init_process_group,
        "get_backend": lambda group=None: chosen["backend"],
        "is_nccl_available": lambda: True,
        "is_torchelastic_launched": lambda: "TORCHELASTIC_RUN_ID" in os.environ,
        "all_gather_object": _all_gather_object,
        "gather_object": _gather_object,
        "broadcast_object_list": lambda *args, **kwargs: None,
        "scatter_object_list": _scatter_object_list,
        "barrier": lambda *args, **kwargs: None,
        "monitored_barrier": lambda *args, **kwargs: None,
        # It compares the peers' shapes with ours, which are the same.
        "_verify_params_across_processes": lambda *args, **kwargs: None,
        "_get_default_timeout": lambda backend: c10d.default_pg_timeout,
    }
    for name, function in replacements.items():
        for module in (distributed, c10d):
            if hasattr(module, name):
                setattr(module, name, function)
    # torch looks up what each backend is for; the fake one serves the GPU as NCCL does.
    c10d.Backend.backend_capability.setdefault("fake", ["cpu", "cuda"])


def _spawn_in_this_process() -> None:
    """`torch.multiprocessing.spawn`: the first rank runs here, where it can be seen."""

    def spawn(fn: Any, args: Sequence[Any] = (), *rest: Any, **kwargs: Any) -> None:  # noqa: ARG001
        fn(0, *args)

    for name in ("torch.multiprocessing", "torch.multiprocessing.spawn"):
        module: Any = importlib.import_module(name)
        module.spawn = module.start_processes = spawn


def _positive(given: Any, variable: str, otherwise: int) -> int:
    if isinstance(given, int) and given >= 0:
        return given
    return int(os.environ.get(variable, otherwise))


def _all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:  # noqa: ARG001
    object_list[:] = [obj] * len(object_list)


def _gather_object(obj: Any, object_gather_list: list[Any] | None = None, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
    if object_gather_list is not None:
        object_gather_list[:] = [obj] * len(object_gather_list)


def _scatter_object_list(output: list[Any], objects: list[Any] | None = None, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
    if objects:
        output[0] = objects[0]


# -- collectives ----------------------------------------------------------------------------------------------------------


def is_collective(func: torch._ops.OpOverload) -> bool:
    return func.namespace == "c10d"


def collective(func: torch._ops.OpOverload, args: Sequence[Any]) -> Any:
    """What a collective returns: the tensors it was given to fill, and work that is done. Peers have what we have."""
    returned = [r for r in func._schema.returns if "Work" not in str(r.type)]
    filled = args[: len(returned)]
    if returned and len(args) > 1:
        sources = [t for t in _flat(args[1]) if not t.is_meta]
        for target in _flat(filled):
            if not target.is_meta and sources and target.shape == sources[0].shape:
                target.copy_(sources[0])
    done = torch.futures.Future[list[torch.Tensor]]()
    done.set_result(_flat(filled or args[:1]))
    work = torch._C._distributed_c10d._create_work_from_future(done).boxed()
    return (*filled, work) if returned else work


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in _flat(v)] if isinstance(value, list | tuple) else []
