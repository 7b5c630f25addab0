"""Host memory that would be pinned: none is here, but copies from it do not make the host wait."""

from __future__ import annotations

import weakref
from typing import Any

import torch


class Pinned:
    """Remembers which storages were asked to be pinned, for as long as they live."""

    def __init__(self) -> None:
        self._storages: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def add(self, tensor: torch.Tensor) -> None:
        if tensor.device.type == "cpu" and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            self._storages[storage._cdata] = storage

    def add_all(self, value: Any) -> None:
        """Everything in a batch of a data loader that pins what it loads."""
        if isinstance(value, torch.Tensor):
            self.add(value)
        elif isinstance(value, dict):
            self.add_all(list(value.values()))
        elif isinstance(value, list | tuple):
            for item in value:
                self.add_all(item)

    def holds(self, tensor: torch.Tensor) -> bool:
        if not self._storages or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            return False
        return tensor.untyped_storage()._cdata in self._storages
