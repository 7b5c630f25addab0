"""What a family of sample networks is: numbers that describe one, and everything about it that needs no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from tonnage.benchmark.workloads.layer import Layer
from tonnage.benchmark.workloads.number import Number, Value
from tonnage.errors import MissingDependency, UsageError
from tonnage.hardware.catalogue import nearest

if TYPE_CHECKING:
    from tonnage.benchmark.workloads.workload import Workload

Structure: TypeAlias = Mapping[str, Value]

# 8 GB of float32 weights and 32 GB with gradients and Adam's state: more would first exhaust the host that builds it.
MAX_PARAMETERS = 2 * 10**9


class TooManyParameters(UsageError):
    """Every number is allowed, but together they make a network that is too large to build."""


class Family(ABC):
    """Networks of one kind. Methods take a point: values for some of the numbers; the others have their defaults."""

    name: ClassVar[str]
    help: ClassVar[str]
    numbers: ClassVar[tuple[Number, ...]]
    takes_images: ClassVar[bool] = False  # only images can be laid out channels last

    def number(self, name: str) -> Number:
        """The number of that name; raises `UsageError` with the nearest one."""
        for number in self.numbers:
            if number.name == name:
                return number
        names = [number.name for number in self.numbers]
        meant = nearest(name, names)
        hint = f"did you mean {meant}?" if meant else f"it has: {', '.join(names)}"
        raise UsageError(f"{self.name} has no number {name!r}", hint)

    def resolve(self, point: Structure) -> dict[str, Value]:
        """The point complete and in one form: equal networks have equal results. Raises `UsageError`.

        Defaults are filled in, other names of a value replaced, and numbers that do not matter left out, such as the
        filters of a fourth layer of three.
        """
        given = {name: self.number(name).check(value, self.name) for name, value in point.items()}
        full = {number.name: given.get(number.name, number.default) for number in self.numbers}
        full |= self._same_as(full)
        relevant = self._relevant(full)
        resolved = {name: value for name, value in full.items() if name in relevant}
        self._refuse_giants(resolved)
        return resolved

    def parameter_count(self, point: Structure) -> int:
        """Trainable parameters, by formula."""
        return sum(layer.parameters for layer in self.layers(point))

    def multiply_adds(self, point: Structure) -> int:
        """Multiplications with addition in the forward pass of one sample, by formula."""
        return sum(layer.multiply_adds for layer in self.layers(point))

    def layers(self, point: Structure) -> tuple[Layer, ...]:
        """The layers in the order in which a sample goes through them."""
        return tuple(self._layers(self.resolve(point)))

    def input_shape(self, point: Structure) -> tuple[int, ...]:
        """Of one sample, as torch has it: channels first."""
        return self._input_shape(self.resolve(point))

    def build(self, point: Structure, device: str = "cpu") -> Workload:
        """The network itself, with its data and loss. Needs torch; weights are made on `device`, "meta" for none."""
        resolved = self.resolve(point)
        with _device(device):
            return self._build(resolved)

    def _same_as(self, full: Structure) -> Structure:  # noqa: ARG002 - for families whose values have several names
        """Values to replace because another name of the same is preferred."""
        return {}

    def _relevant(self, full: Structure) -> Collection[str]:
        """Names of the numbers that make a difference, given all others."""
        return full.keys()

    def _refuse_giants(self, resolved: Structure) -> None:
        count = sum(layer.parameters for layer in self._layers(resolved))
        if count > MAX_PARAMETERS:
            raise TooManyParameters(
                f"a {self.name} network with {_words(resolved)} has {count:,} parameters, more than {MAX_PARAMETERS:,}"
            )

    @abstractmethod
    def _layers(self, point: Structure) -> Iterable[Layer]: ...

    @abstractmethod
    def _input_shape(self, point: Structure) -> tuple[int, ...]: ...

    @abstractmethod
    def _build(self, point: Structure) -> Workload: ...


def whole(point: Structure, name: str) -> int:
    """The value of a number that is known to be whole."""
    value = point[name]
    assert isinstance(value, int), name
    return value


def text(point: Structure, name: str) -> str:
    """The value of a number that is known to be a word."""
    value = point[name]
    assert isinstance(value, str), name
    return value


def _words(point: Structure) -> str:
    return ", ".join(f"{name} {value}" for name, value in point.items())


def _device(device: str) -> AbstractContextManager[object]:
    try:
        import torch
    except ModuleNotFoundError:
        raise MissingDependency("building a workload needs torch", "pip install 'tonnage[torch]'") from None
    return torch.device(device)
