"""Values the virtual GPU knows although it computes nothing.

Tensors on the virtual GPU have no data. Yet programs look at some of them: token ids, masks, lengths, routing decisions.
Small integer and boolean tensors (and very small float ones) therefore keep a *twin*, a real copy on the host with the
same storage layout, for as long as everything that went into them was known. What nobody can know is `Unknown`: it may
be printed, summed and compared, but not used as a size or to choose a branch of the model. Unknown masks are taken to
select everything, with a warning: that is the most that a program can need.
"""

from __future__ import annotations

import linecache
import re
from enum import IntEnum

import torch

from tonnage.program.virtual_gpu.callers import caller

FULL_MASK = "a selection by values on the GPU is not known; the largest possible was assumed"
MOST_INTEGERS = 1 << 22
MOST_FLOATS = 1 << 20  # a causal mask over 1024 tokens
MOST_DATA = 1 << 12  # floats that come from a data set or a random generator: nobody decides anything by them


class Basis(IntEnum):
    """How much a known value is worth."""

    FACT = 0
    CHOICE = 1  # one of many that are equally plausible, such as a sampled token
    BOUND = 2  # what holds if an unknown mask selects everything


class Twins:
    """Real values behind virtual storages, by the storage's address: a flat copy, or one number that all elements are."""

    def __init__(self) -> None:
        self._flat: dict[int, torch.Tensor] = {}
        self._basis: dict[int, Basis] = {}  # of what is no fact
        self._masks: set[int] = set()  # storages of unknown zeros and ones
        self._sources: dict[int, tuple[torch.Tensor, int]] = {}  # host tensors and their versions

    def __bool__(self) -> bool:
        return bool(self._flat or self._masks or self._sources)

    def knows(self, key: int) -> bool:
        return key in self._flat

    def value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The tensor's values, or None. The result shares memory with the twin."""
        try:
            flat = self._flat.get(tensor.untyped_storage()._cdata)
        except NotImplementedError:  # of a tensor inside `vmap` and the like
            return None
        if flat is None:
            return None
        if flat.dim() == 0:
            return flat.expand(tensor.shape) if flat.dtype == tensor.dtype else None
        typed = flat.view(tensor.dtype) if flat.dtype != tensor.dtype else flat
        return typed.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def number(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The one number that all elements of a tensor are."""
        if not tensor.is_meta:
            return tensor if tensor.dim() == 0 else None
        flat = self._flat.get(tensor.untyped_storage()._cdata)
        return flat if flat is not None and flat.dim() == 0 and flat.dtype == tensor.dtype else None

    def basis(self, tensor: torch.Tensor) -> Basis:
        if not self._basis or not tensor.is_meta:
            return Basis.FACT
        return self._basis.get(tensor.untyped_storage()._cdata, Basis.FACT)

    def learn(self, tensor: torch.Tensor, value: torch.Tensor, basis: Basis = Basis.FACT) -> None:
        """Remember the value of a tensor that fills its storage; a single number stands for all elements."""
        storage = tensor.untyped_storage()
        if not fills_its_storage(tensor):
            return
        if value.dim() == 0 and tensor.dim() > 0:
            self._flat[storage._cdata] = value
        elif worth_knowing(tensor):
            flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
            flat.as_strided(tensor.shape, tensor.stride(), 0).copy_(value)
            self._flat[storage._cdata] = flat
        else:
            return
        self.trust(storage._cdata, basis)

    def trust(self, key: int, basis: Basis) -> None:
        """Say how much is to be made of what is known."""
        if basis is Basis.FACT:
            self._basis.pop(key, None)
        else:
            self._basis[key] = basis

    def spread(self, tensor: torch.Tensor) -> None:
        """Before some elements change: give each of them a value of its own, or forget them."""
        storage = tensor.untyped_storage()
        flat, count = self._flat.get(storage._cdata), storage.nbytes() // tensor.element_size()
        if flat is not None and flat.dim() == 0:
            if count > MOST_INTEGERS:
                self.forget(storage._cdata)
            else:
                self._flat[storage._cdata] = flat.expand(count).clone()

    def is_mask(self, tensor: torch.Tensor) -> bool:
        """Does a tensor, known or not, hold nothing but zeros and ones?"""
        return tensor.dtype is torch.bool or (tensor.is_meta and tensor.untyped_storage()._cdata in self._masks)

    def mark_mask(self, tensor: torch.Tensor) -> None:
        self._masks.add(tensor.untyped_storage()._cdata)

    def note_source(self, tensor: torch.Tensor, source: torch.Tensor) -> None:
        """Remember the host tensor behind a copy of data: too large to compute with, but programs compare their data."""
        alike = source.is_contiguous() and tensor.is_contiguous() and tensor.dtype == source.dtype
        if alike and tensor.numel() <= MOST_INTEGERS and not source.is_inference():  # else its changes go unnoticed
            self._sources[tensor.untyped_storage()._cdata] = source, source._version

    def source(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The host's numbers behind a tensor, unless one of the two was changed since."""
        if not self._sources or not tensor.is_meta:
            return None
        found, version = self._sources.get(tensor.untyped_storage()._cdata, (None, 0))
        if found is None or found._version != version or found.dtype != tensor.dtype:
            return None
        return found.as_strided(tensor.shape, tensor.stride(), found.storage_offset() + tensor.storage_offset())

    def forget(self, key: int) -> None:
        self._sources.pop(key, None)
        self._flat.pop(key, None)
        self._basis.pop(key, None)
        self._masks.discard(key)


def fills_its_storage(tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def worth_knowing(tensor: torch.Tensor, is_data: bool = False) -> bool:
    dtype = tensor.dtype
    limit = MOST_INTEGERS
    if dtype.is_floating_point or dtype.is_complex:
        limit = MOST_DATA if is_data else MOST_FLOATS
    return tensor.numel() <= limit


_SIZE = re.compile(r"\b(range|empty|zeros|ones|rand|randn|arange|full)\(.*\bint\(")


def _line_of_user() -> str:
    frame = caller()
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno)


class Unknown(float):
    """A number that only a real GPU could have computed. Prints as a plausible value; refuses to be a size."""

    def __index__(self) -> int:
        from tonnage.program.virtual_gpu.errors import DataDependent

        raise DataDependent("a size or a loop count is computed from values on the GPU")

    def __int__(self) -> int:
        """Python forgets where a whole number came from; if the user's line uses it as a size at once, that is known."""
        if _SIZE.search(_line_of_user()):
            self.__index__()
        return float.__int__(self)

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec.endswith(("d", "x", "b", "o", "n")) else float.__format__(self, spec)

    def __hash__(self) -> int:
        return float.__hash__(self)

    def _keep(name: str):  # type: ignore[no-untyped-def, misc]  # noqa: N805  (builds methods while the class is made)
        plain = getattr(float, name)

        def method(self, *others):  # type: ignore[no-untyped-def]
            result = plain(self, *others)
            return Unknown(result) if isinstance(result, float) else result

        return method

    for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg", "abs", "floordiv", "mod"):
        locals()[f"__{_name}__"] = _keep(f"__{_name}__")
    del _name, _keep

    def __round__(self, digits: int | None = None) -> Unknown:  # type: ignore[override]
        return Unknown(float.__round__(self, digits or 0))
