"""What the user wrote: a script with arguments, `module:function`, an ONNX file, a Caffe model, or a saved Trace."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tonnage.errors import NotFound, UsageError

_FUNCTION = re.compile(r"(?P<module>[\w./\\-]+):(?P<function>[A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Something that can be captured. `kind` is `script`, `function`, `onnx`, `caffe` or `trace`."""

    kind: str
    target: str
    function: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As the user would type it."""
        target = f"{self.target}:{self.function}" if self.function else self.target
        return " ".join((target, *self.arguments))


def parse_program(text: str, arguments: tuple[str, ...] = ()) -> Program:
    """The program behind what the user typed; raises `NotFound` or `UsageError`."""
    path = Path(text)
    if path.is_file():
        return _from_file(path, arguments)
    function = _FUNCTION.fullmatch(text)
    if function:
        return Program(
            kind="function", target=_module(function["module"]), function=function["function"], arguments=arguments
        )
    if path.is_dir():
        raise UsageError(f"{text} is a folder", "name the script in it, for example " + str(path / "train.py"))
    raise NotFound(f"there is no file {text}", _nearest_script(path))


def _from_file(path: Path, arguments: tuple[str, ...]) -> Program:
    suffix = path.suffix.lower()
    if suffix in (".trace", ".onnx") and arguments:
        raise UsageError(f"{path} takes no arguments, but got: {' '.join(arguments)}")
    if suffix == ".trace":
        return Program(kind="trace", target=str(path))
    if suffix == ".onnx":
        return Program(kind="onnx", target=str(path))
    if suffix in (".prototxt", ".caffemodel"):
        return _caffe(path, arguments)
    return Program(kind="script", target=str(path), arguments=arguments)


def _caffe(path: Path, arguments: tuple[str, ...]) -> Program:
    """A prototxt with the caffemodel that may be named behind it, or a caffemodel with the prototxt beside it."""
    if path.suffix.lower() == ".prototxt":
        if len(arguments) > 1 or any(Path(each).suffix.lower() != ".caffemodel" for each in arguments):
            raise UsageError(f"{path} takes a caffemodel as its only argument, but got: {' '.join(arguments)}")
        if arguments and not Path(arguments[0]).is_file():
            raise NotFound(f"there is no file {arguments[0]}")
        return Program(kind="caffe", target=str(path), arguments=arguments)
    if arguments:
        raise UsageError(f"{path} takes no arguments, but got: {' '.join(arguments)}")
    prototxt = next(
        (p for p in (path.with_suffix(".prototxt"), path.with_name("deploy.prototxt")) if p.is_file()), None
    )
    if prototxt is None:
        raise UsageError(f"{path} holds weights; the network is in a prototxt", "name it: deploy.prototxt " + str(path))
    return Program(kind="caffe", target=str(prototxt), arguments=(str(path),))


def _module(text: str) -> str:
    """A module's dotted name, or the path of its file."""
    if text.endswith(".py") or "/" in text:
        if not Path(text).is_file():
            raise NotFound(f"there is no file {text}")
        return text
    return text


def _nearest_script(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path()
    scripts = sorted(p.name for p in folder.glob("*.py"))[:5]
    place = "this folder" if folder == Path() else str(folder)
    return f"{place} has: {', '.join(scripts)}" if scripts else ""
