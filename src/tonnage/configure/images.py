"""Which container image a program is given: by framework, CUDA, driver and compute capability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tonnage.configure.inventory import Candidate
from tonnage.configure.label import ImageReference
from tonnage.configure.work import Work
from tonnage.errors import DoesNotFit

Version: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One entry of the catalogue; versions are tuples, so that 12.10 comes after 12.8."""

    reference: str
    digest: str | None
    framework: str
    framework_version: Version
    cuda: Version
    driver: Version  # at least
    capability_least: Version
    capability_most: Version
    format: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """The catalogue. `formats` are in the order of preference."""

    version: str
    formats: tuple[str, ...]
    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageChoice:
    image: ImageReference
    warnings: tuple[str, ...]


def version_of(text: str) -> Version:
    """`12.8` as (12, 8); raises ValueError. What follows a plus sign is a build, not a version."""
    return tuple(int(part) for part in text.partition("+")[0].split("."))


def choose_image(work: Work, candidate: Candidate, images: Images) -> ImageChoice:
    """The best that fits; where nothing does, the nearest, with a warning that says what does not."""
    offered = [image for image in images.images if image.format in images.formats]
    if not offered:
        raise DoesNotFit("the image catalogue offers no image of a known format")
    warnings: list[str] = []
    named = _narrowed(offered, [i for i in offered if i.framework == work.framework], warnings, _no_framework(work))
    able = _narrowed(named, [i for i in named if _runs_on(i, candidate)], warnings, _no_hardware(candidate))
    wanted, words = _wanted_version(work)
    warnings += words
    best = min(able, key=lambda image: _distance(image, wanted, candidate, images))
    if wanted and best.framework_version[: len(wanted)] != wanted:
        found = ".".join(map(str, best.framework_version))
        warnings.append(f"no image has {work.framework} {work.framework_version}; the nearest has {found}")
    if best.digest is None:
        warnings.append(f"the image catalogue has no digest of {best.reference}; its tag may change its meaning")
    return ImageChoice(image=ImageReference(reference=best.reference, digest=best.digest), warnings=tuple(warnings))


def _narrowed(before: Sequence[Image], after: Sequence[Image], warnings: list[str], text: str) -> Sequence[Image]:
    if not after:
        warnings.append(text)
    return after or before


def _no_framework(work: Work) -> str:
    return f"no image has the framework {work.framework!r:.80}; the nearest of all is taken"


def _no_hardware(candidate: Candidate) -> str:
    gpu = (
        f"compute capability {candidate.gpu.compute_capability} of {candidate.gpu.name}" if candidate.gpu else "no GPU"
    )
    driver = candidate.node.labels.get("driver", "")
    return f"no image is made for {gpu}{f' with driver {driver}' if driver else ''}; the nearest is taken"


def _runs_on(image: Image, candidate: Candidate) -> bool:
    if candidate.gpu is None:
        return True
    capability, driver = _capability(candidate), _driver(candidate)
    if capability is None or not image.capability_least <= capability <= image.capability_most:
        return False
    return driver is None or driver >= image.driver


def _capability(candidate: Candidate) -> Version | None:
    """None for a GPU that is not NVIDIA's."""
    try:
        return version_of(candidate.gpu.compute_capability) if candidate.gpu else None
    except ValueError:
        return None


def _driver(candidate: Candidate) -> Version | None:
    try:
        return version_of(candidate.node.labels["driver"])
    except (KeyError, ValueError):
        return None


def _wanted_version(work: Work) -> tuple[Version | None, list[str]]:
    if not work.framework_version:
        return None, []
    try:
        return version_of(work.framework_version), []
    except ValueError:
        return None, [f"{work.framework_version!r:.80} is no version; any is taken"]


def _distance(image: Image, wanted: Version | None, candidate: Candidate, images: Images) -> tuple[float, ...]:
    """Versions first, the major one above all; then the compute capability, the format and the priority."""
    apart = _apart(image.framework_version, wanted) if wanted else 0.0
    capability = _capability(candidate)
    missing = 0.0
    if capability is not None:
        low, high = _number(image.capability_least), _number(image.capability_most)
        missing = max(low - _number(capability), _number(capability) - high, 0.0)
    driver = _driver(candidate)
    lacking = float(driver is not None and driver < image.driver)
    return missing, lacking, apart, images.formats.index(image.format), -image.priority


def _apart(version: Version, wanted: Version) -> float:
    return abs(_number(version[: len(wanted)]) - _number(wanted))


def _number(version: Version) -> float:
    major, minor, patch = (*version, 0, 0, 0)[:3]
    return major * 1e6 + minor * 1e3 + patch
