"""The image: by framework version, compute capability and driver; the nearest, with a warning, where none fits."""

from dataclasses import replace

import pytest
from placing import example_cluster, work

from tonnage.configure.images import ImageChoice, Images, choose_image
from tonnage.configure.inventory import Candidate, candidates
from tonnage.hardware import find_gpu
from tonnage.service.files import read_images


def on(gpu: str, driver: str = "", **changes: str) -> ImageChoice:
    candidate = next(c for c in candidates(example_cluster()) if c.gpu)
    node = replace(candidate.node, labels={"driver": driver} if driver else {})
    return choose_image(work(**changes), replace(candidate, gpu=find_gpu(gpu), node=node), read_images())


@pytest.mark.parametrize(
    ("gpu", "version", "found"),
    [
        ("H200", "2.13.0", "2.13.0-cuda12.6"),
        ("H200", "2.13.0+cpu", "2.13.0-cuda12.6"),
        ("H200", "2.8.0", "2.8.0-cuda12.8"),
        ("H200", "", "2.11.0-cuda12.8"),
        ("B200", "2.11.0", "2.11.0-cuda12.8"),
        ("V100 SXM2 16GB", "2.13.0", "2.13.0-cuda12.6"),
    ],
)
def test_the_version_that_was_asked_for_is_taken_if_it_fits(gpu: str, version: str, found: str) -> None:
    choice = on(gpu, framework_version=version)
    assert found in choice.image.reference
    assert choice.warnings == ()


def test_the_nearest_version_is_taken_with_a_warning() -> None:
    choice = on("H200", framework_version="2.9.1")
    assert "2.8.0" in choice.image.reference or "2.10.0" in choice.image.reference
    assert choice.warnings[0].startswith("no image has torch 2.9.1; the nearest has 2.")


def test_a_gpu_too_new_for_a_version_gets_another() -> None:
    choice = on("B200", framework_version="2.13.0")
    assert "cuda12.8" in choice.image.reference
    assert choice.warnings


def test_an_old_driver_gets_an_old_cuda() -> None:
    assert "cuda11.8" in on("A100 SXM 80GB", driver="470.57.02").image.reference


def test_a_driver_that_is_older_than_all_images_is_warned_of() -> None:
    choice = on("A100 SXM 80GB", driver="390.10")
    assert "with driver 390.10; the nearest is taken" in choice.warnings[0]


@pytest.mark.parametrize("gpu", ["MI300X"])
def test_a_gpu_of_another_vendor_is_warned_of(gpu: str) -> None:
    assert "no image is made for compute capability" in on(gpu).warnings[0]


def test_an_unknown_framework_is_warned_of() -> None:
    assert on("H200", framework="mystery").warnings[0].startswith("no image has the framework 'mystery'")


def test_a_version_that_is_none_is_warned_of() -> None:
    assert on("H200", framework_version="nightly").warnings == ("'nightly' is no version; any is taken",)


def test_an_image_without_a_digest_is_warned_of() -> None:
    images = read_images()
    bare = Images(version="1", formats=("oci",), images=tuple(replace(i, digest=None) for i in images.images))
    candidate: Candidate = next(c for c in candidates(example_cluster()) if c.gpu)
    assert "has no digest" in choose_image(work(), candidate, bare).warnings[-1]


def test_every_shipped_image_has_a_digest() -> None:
    assert all(image.digest for image in read_images().images)
