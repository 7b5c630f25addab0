"""PyTorch models: files of `torch.export` (.pt2), which tell their tensors, and of TorchScript (.pt), which do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

from tonnage.errors import TonnageError, UsageError
from tonnage.serve.configuration import TensorSpec
from tonnage.serve.datatypes import BF16
from tonnage.serve.runtimes import Arrays, LoadOrder, sentence

DATATYPES = {
    torch.bool: "BOOL", torch.uint8: "UINT8", torch.uint16: "UINT16", torch.uint32: "UINT32", torch.uint64: "UINT64",
    torch.int8: "INT8", torch.int16: "INT16", torch.int32: "INT32", torch.int64: "INT64", torch.float16: "FP16",
    torch.float32: "FP32", torch.float64: "FP64", torch.bfloat16: BF16,
}  # fmt: skip


class TorchRuntime:
    """A function of tensors in the order of its inputs; None stands for an optional one that is not given. It makes
    tensors in the order of its outputs, or a dictionary with their names."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        *,
        batch_axis: bool,
        device: str,
        most_rows: int = 0,
    ) -> None:
        self._function, self._device = function, torch.device(device)
        self.inputs, self.outputs, self.batch_axis, self.most_rows = inputs, outputs, batch_axis, most_rows
        self._half = {each.name for each in inputs if each.datatype == BF16}
        self._names = [each.name for each in outputs]
        self._places = numbers_behind(self._names)

    def run(self, inputs: Arrays, wanted: tuple[str, ...]) -> Arrays:
        with torch.inference_mode():
            given = [
                self._tensor(spec.name, inputs[spec.name]) if spec.name in inputs else None for spec in self.inputs
            ]
            try:
                made = self._function(*given)
            except torch.OutOfMemoryError as error:
                raise TonnageError(sentence(error)) from error  # no fault of the inputs
            except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
                raise UsageError(sentence(error)) from error
            named = self._named(made)
            return {name: as_numpy(tensor) for name, tensor in named.items() if not wanted or name in wanted}

    def _tensor(self, name: str, array: npt.NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        if name in self._half:
            tensor = tensor.to(torch.bfloat16)
        return tensor.to(self._device)

    def _named(self, made: Any) -> Mapping[str, torch.Tensor]:
        names, places = self._names, self._places
        if isinstance(made, dict) and made.keys() >= set(names):
            return {name: made[name] for name in names}
        tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        if places is not None and max(places, default=-1) < len(tensors):
            return {name: tensors[place] for name, place in zip(names, places, strict=True)}
        if len(tensors) != len(names):
            raise TonnageError(f"the model makes {len(tensors)} tensors; its configuration names {len(names)} outputs")
        return dict(zip(names, tensors, strict=True))


def load(order: LoadOrder) -> TorchRuntime:
    torch.set_num_threads(order.setting("intra_op_thread_count", order.threads))
    if Path(order.path).suffix == ".pt2":
        from tonnage.serve.runtimes import torch_exported

        return torch_exported.load(order)
    from tonnage.serve.runtimes import torch_scripted

    return torch_scripted.load(order)


def as_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()  # numpy has no such kind
    return tensor.detach().contiguous().cpu().numpy()


def numbers_behind(names: Sequence[str]) -> list[int] | None:
    """Of names such as INPUT__0, which say the place of a tensor; None where they say something else."""
    parts = [name.rpartition("__") for name in names]
    if not all(mark and number.isascii() and number.isdigit() and len(number) < 5 for _, mark, number in parts):
        return None
    numbers = [int(number) for _, _, number in parts]
    return numbers if len(set(numbers)) == len(numbers) else None
