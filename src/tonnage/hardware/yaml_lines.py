"""YAML files written by users, read with care: every complaint names the file, the line and the field."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tonnage.errors import InvalidFile, NotFound

Location = Sequence[str | int]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Far above any real file; below what a hostile one needs to hurt.
MOST_BYTES = 4 * 1024 * 1024
_MAX_DEPTH = 32
_MAX_ALIASES = 200
_MAX_NODES = 500_000


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a file, and where each field of it stands."""

    path: str
    root: yaml.Node
    value: object

    def line(self, location: Location) -> int:
        """The line of a field, or of the nearest thing around it that exists."""
        node, line = self.root, self.root.start_mark.line
        for step in location:
            found = _child(node, step)
            if found is None:
                break
            node, line = found
        return int(line) + 1

    def error(self, location: Location, text: str, hint: str = "") -> InvalidFile:
        field = format_location(location)
        return InvalidFile(f"{self.path}:{self.line(location)}: {field + ': ' if field else ''}{text}", hint)


def read_document(path: str | Path) -> Document:
    """Read one YAML mapping; raises `NotFound` or `InvalidFile`."""
    return parse_document(path, _read_bytes(path))


def parse_document(path: str | Path, data: bytes) -> Document:
    """The same of a content that came from elsewhere; `path` is what complaints call it. Raises `InvalidFile`."""
    text = _text(path, data)
    try:
        _check_events(path, text)
        root = yaml.compose(text, Loader=_LOADER)
        _check_nodes(path, root)
        value = yaml.constructor.SafeConstructor().construct_document(root)
    except yaml.YAMLError as error:
        raise _syntax_error(path, text, error) from error
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"{path}: a value cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise InvalidFile(f"{path}:{root.start_mark.line + 1}: must be a mapping (lines of `name: value`)")
    return Document(str(path), root, value)


def format_location(location: Location) -> str:
    """`("nodes", 0, "gpus")` as `nodes[0].gpus`."""
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def _read_bytes(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise NotFound(f"no such file: {path}") from None
    except OSError as error:
        raise InvalidFile(f"{path}: cannot be read: {error.strerror}") from error


def _text(path: str | Path, data: bytes) -> str:
    if len(data) > MOST_BYTES:
        raise InvalidFile(f"{path}: {len(data)} bytes are too many for a file of this kind")
    text = utf8_text(path, data)
    if not text.strip():
        raise InvalidFile(f"{path}: the file is empty")
    return text


def utf8_text(path: str | Path, data: bytes) -> str:
    """Raises `InvalidFile` with the line of the first byte that is no text."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InvalidFile(f"{path}:{line}: not UTF-8 text (byte 0x{data[error.start]:02x})") from error


def _check_events(path: str | Path, text: str) -> None:
    """One pass without building anything: depth, aliases and the number of documents."""
    depth = aliases = documents = 0
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1
        documents += isinstance(event, yaml.DocumentStartEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if documents > 1:
            raise InvalidFile(f"{path}:{line}: a second document starts here; put it in a file of its own")
        if depth > _MAX_DEPTH:
            raise InvalidFile(f"{path}:{line}: nested more than {_MAX_DEPTH} levels deep")
        if aliases > _MAX_ALIASES:
            raise InvalidFile(f"{path}:{line}: more than {_MAX_ALIASES} aliases")
    if documents == 0:
        raise InvalidFile(f"{path}: the file is empty")


def _check_nodes(path: str | Path, root: yaml.Node) -> None:
    sizes: dict[int, int | None] = {}  # None while a node is being counted
    if _size(path, root, sizes) > _MAX_NODES:
        raise InvalidFile(f"{path}: its aliases expand to more than {_MAX_NODES} values")


def _size(path: str | Path, node: yaml.Node, sizes: dict[int, int | None]) -> int:
    """How many values the node stands for with its aliases expanded; also refuses repeated keys."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    key = id(node)
    if key not in sizes:
        sizes[key] = None
        if isinstance(node, yaml.MappingNode):
            _check_keys(path, node)
        sizes[key] = 1 + sum(_size(path, child, sizes) for child in _children(node))
    size = sizes[key]
    if size is None:
        raise InvalidFile(f"{path}:{node.start_mark.line + 1}: an alias refers to the value that contains it")
    return size


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value)


def _check_keys(path: str | Path, node: yaml.MappingNode) -> None:
    seen: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if key.value in seen:
            raise InvalidFile(f"{path}:{line}: {key.value!r} is given twice; first on line {seen[key.value]}")
        seen[key.value] = line


def _child(node: yaml.Node, step: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step].start_mark.line
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(step):
                return value, key.start_mark.line
    return None


def _syntax_error(path: str | Path, text: str, error: yaml.YAMLError) -> InvalidFile:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    if mark is None:
        return InvalidFile(f"{path}: not valid YAML: {problem}")
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: mark.column + 1]:
        return InvalidFile(f"{path}:{mark.line + 1}: a tab is used for indentation; YAML takes spaces only")
    return InvalidFile(f"{path}:{mark.line + 1}: not valid YAML: {problem}")
