"""The label: the server's answer, small enough to travel with a container. What is signed is its canonical JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tonnage.configure.configuration import COMMUNICATIONS, HardwareConfiguration
from tonnage.configure.refusals import MalformedLabel

FORMAT = "tonnage-label-v1"
MOST_BYTES = 16 * 1024
_MOST_TEXT = 512
_MOST_NUMBER = 2**53 - 1  # what every reader of JSON keeps exactly
_LONGEST_SECONDS = 366 * 86400  # of validity

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_ID = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_REFERENCE = re.compile(r"[a-z0-9][a-zA-Z0-9._/:-]*")
_SIGNATURE = re.compile(r"[0-9a-f]{128}")


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def is_reference(text: str) -> bool:
    """Registry, name and tag, without a digest."""
    return _REFERENCE.fullmatch(text) is not None and len(text) <= _MOST_TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageReference:
    """A container image. Without its digest a tag may come to mean something else: the server warns then."""

    reference: str
    digest: str | None

    @property
    def pinned(self) -> str:
        """As container engines take it."""
        return f"{self.reference}@{self.digest}" if self.digest else self.reference


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTime:
    """Of the whole run, `steps` steps as one GPU would take them."""

    seconds: float
    low_seconds: float
    high_seconds: float
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """`id` is random and never used twice; times are whole seconds since the epoch, in UTC."""

    format: str = FORMAT
    id: str
    server: str
    hardware: HardwareConfiguration
    image: ImageReference
    program_digest: str
    rules_version: str
    predicted: PredictedTime
    issued_at: int
    expires_at: int

    def check(self) -> None:
        """Raises `MalformedLabel` for what types alone do not exclude."""
        for name, pattern, text in (
            ("id", _ID, self.id), ("server", _NAME, self.server), ("program_digest", _DIGEST, self.program_digest),
            ("rules_version", _NAME, self.rules_version), ("image.reference", _REFERENCE, self.image.reference),
            ("image.digest", _DIGEST, self.image.digest), ("hardware.node_type", _NAME, self.hardware.node_type),
        ):  # fmt: skip
            if text is not None and (len(text) > _MOST_TEXT or not pattern.fullmatch(text)):
                raise MalformedLabel(f"the label has {name} = {text[:80]!r}")
        if self.format != FORMAT:
            raise MalformedLabel(f"the label is of the format {self.format[:80]!r}, not {FORMAT}")
        if not 0 <= self.issued_at < self.expires_at <= self.issued_at + _LONGEST_SECONDS:
            raise MalformedLabel(f"the label is valid from {self.issued_at} to {self.expires_at}, which cannot be")
        _check_numbers(self.hardware, self.predicted)


def _check_numbers(hardware: HardwareConfiguration, predicted: PredictedTime) -> None:
    whole = {
        "gpu_count": hardware.gpu_count, "pcie_generation": hardware.pcie_generation,
        "pcie_lanes": hardware.pcie_lanes, "cpu_cores": hardware.cpu_cores, "sockets": hardware.sockets,
        "memory_bytes": hardware.memory_bytes, "loader_workers": hardware.loader_workers, "steps": predicted.steps,
    }  # fmt: skip
    for name, number in whole.items():
        least = 0 if name in ("gpu_count", "loader_workers") else 1
        if number is not None and not least <= number <= _MOST_NUMBER:
            raise MalformedLabel(f"the label has {name} = {number}")
    if hardware.communication not in COMMUNICATIONS or bool(hardware.gpu) != (hardware.gpu_count > 0):
        raise MalformedLabel(
            f"the label has {hardware.gpu_count} x {hardware.gpu!r:.80} by {hardware.communication!r:.80}"
        )
    if len(hardware.gpu) > _MOST_TEXT or not hardware.gpu.isascii() or not (hardware.gpu or "-").isprintable():
        raise MalformedLabel("the label has an unreadable GPU")
    if not 0 < predicted.low_seconds <= predicted.seconds <= predicted.high_seconds < 1e15:
        raise MalformedLabel("the label predicts a time that cannot be")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedLabel:
    """A label as it was received, with the signature in hexadecimal digits; nothing of it has been verified yet."""

    label: Label
    signature: str

    def check(self) -> None:
        self.label.check()
        if not _SIGNATURE.fullmatch(self.signature):
            raise MalformedLabel("the label's signature is not 128 hexadecimal digits")
