"""Rules and images from files: the user's, else those that come with the package."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from tonnage.configure.images import Images
from tonnage.configure.images_file import parse_images
from tonnage.configure.rules import Rules
from tonnage.configure.rules_file import parse_rules
from tonnage.hardware.yaml_lines import Document, read_document


def read_rules(path: str | Path | None = None) -> Rules:
    """Raises `NotFound` or `InvalidFile`."""
    return parse_rules(_document(path, "rules.yaml"))


def read_images(path: str | Path | None = None) -> Images:
    return parse_images(_document(path, "images.yaml"))


def rules_text(path: str | Path | None = None) -> str:
    """As it was written, with its comments."""
    if path is not None:
        return Path(path).read_text("utf-8-sig")
    return files("tonnage.configure").joinpath("rules.yaml").read_text("utf-8")


def _document(path: str | Path | None, shipped: str) -> Document:
    if path is not None:
        return read_document(path)
    with as_file(files("tonnage.configure").joinpath(shipped)) as own:
        return read_document(own)
