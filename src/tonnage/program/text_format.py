"""Reads protobuf's text format, which prototxt and pbtxt files are: names, values and lines, not what they mean.

Everything that is wrong is said in one sentence that names the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from tonnage.errors import InvalidFile

MOST_DEPTH = 32
MOST_FIELDS = 1_000_000
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f\v]+|\#[^\n]*)
    |(?P<newline>\n)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fF]?)(?![\w.]))
    |(?P<word>-?[A-Za-z_][\w.]*)
    |(?P<mark>[{}<>:;,\[\]])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CLOSING = {"{": "}", "<": ">"}


@dataclass(frozen=True, slots=True)
class Quoted:
    """A value in quotation marks."""

    text: str


@dataclass(frozen=True, slots=True)
class Plain:
    """A value without: a number, a truth value or a name of an enumeration."""

    text: str


@dataclass(slots=True)
class Block:
    """What stands between braces, in the order of the file: name, value, line."""

    line: int
    entries: list[tuple[str, Value, int]] = field(default_factory=list)


Value: TypeAlias = Quoted | Plain | Block


def parse_text(text: str, file: str) -> Block:
    """The whole file as one block; raises `InvalidFile`."""
    return _Parser(text, file).whole()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


class _Parser:
    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._tokens = self._split(text)
        self._fields = 0
        self._next = next(self._tokens)

    def whole(self) -> Block:
        block = Block(1)
        while self._next.kind != "end":
            self._entry(block, 1)
        return block

    def _entry(self, block: Block, depth: int) -> None:
        name = self._take()
        if name.text == "[" and name.kind == "mark":
            self._refuse("an extension in brackets, which is not known here", name.line)
        if name.kind != "word":
            self._refuse(f"{_shown(name)} where the name of a field should be", name.line)
        self._count(name)
        colon = self._skip(":")
        self._values(block, name, depth, colon)
        if not self._skip(";"):
            self._skip(",")

    def _count(self, name: _Token) -> None:
        self._fields += 1
        if self._fields > MOST_FIELDS:
            self._refuse(f"more than {MOST_FIELDS:,} fields", name.line)

    def _values(self, block: Block, name: _Token, depth: int, colon: bool) -> None:
        if not self._skip("["):
            block.entries.append((name.text, self._value(name, depth, colon), name.line))
            return
        while not self._skip("]"):  # blocks need no colon, in a list or alone
            line = self._next.line
            block.entries.append((name.text, self._value(name, depth, colon), line))
            self._count(name)
            if not self._skip(",") and not (self._next.kind == "mark" and self._next.text == "]"):
                self._refuse(f"{_shown(self._next)} in the list of {name.text}", self._next.line)

    def _value(self, name: _Token, depth: int, colon: bool) -> Value:
        token = self._take()
        if token.kind == "mark" and token.text in _CLOSING:
            return self._block(name, token, depth)
        if not colon:
            self._refuse(f"no colon after {name.text}", name.line)
        if token.kind == "text":
            return Quoted(self._texts(token))
        if token.kind in ("number", "word"):
            return Plain(token.text)
        return self._refuse(f"{_shown(token)} where the value of {name.text} should be", token.line)

    def _block(self, name: _Token, opening: _Token, depth: int) -> Block:
        if depth >= MOST_DEPTH:
            self._refuse(f"{name.text} is nested more than {MOST_DEPTH} deep", name.line)
        block = Block(name.line)
        while not self._skip(_CLOSING[opening.text]):
            if self._next.kind == "end":
                self._refuse(f"{name.text} is never closed", name.line)
            self._entry(block, depth + 1)
        return block

    def _texts(self, first: _Token) -> str:
        """Strings that follow each other are one."""
        parts = [_unescaped(first.text[1:-1])]
        while self._next.kind == "text":
            parts.append(_unescaped(self._take().text[1:-1]))
        return "".join(parts)

    # -- tokens -------------------------------------------------------------------------------------------------------

    def _take(self) -> _Token:
        token = self._next
        if token.kind != "end":
            self._next = next(self._tokens)
        return token

    def _skip(self, mark: str) -> bool:
        if self._next.kind == "mark" and self._next.text == mark:
            self._take()
            return True
        return False

    def _split(self, text: str) -> Iterator[_Token]:
        line, place = 1, 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                bad = text[place : place + 20].split("\n")[0]
                self._refuse(f"{bad!r}, which is neither a name nor a value", line)
            place = found.end()
            kind = found.lastgroup or ""
            if kind == "newline":
                line += 1
            elif kind != "space":
                yield _Token(kind, found.group(), line)
        yield _Token("end", "", line)

    def _refuse(self, problem: str, line: int) -> NoReturn:
        raise InvalidFile(f"{self._file}, line {line}: {problem}")


def _shown(token: _Token) -> str:
    return "the end of the file" if token.kind == "end" else repr(token.text[:40])


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(found: re.Match[str]) -> str:
    octal, hexadecimal, short, long, letter = found.groups()
    if letter is not None:
        return _LETTERS.get(letter, letter)
    number = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
    return chr(number) if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else "�"
