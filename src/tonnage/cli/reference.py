"""Writes docs/reference/cli.md from the commands themselves: `python -m tonnage.cli.reference > docs/reference/cli.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from tonnage.cli.main import app

_INTRODUCTION = """# The command line

<!-- Made by `python -m tonnage.cli.reference > docs/reference/cli.md`; a test fails when the two differ. -->

Results go to standard output; progress, warnings and errors go to standard error, so that output can be piped. Progress
is shown only on a terminal. `NO_COLOR=1` in the environment switches colours off. [Exit codes](exit-codes.md) tell
scripts what happened, and `--json` prints [one document](json.md).

`tonnage --install-completion` teaches your shell (bash, zsh, fish or PowerShell) to complete commands and options. It
writes a small script and changes the shell's start-up file; `tonnage --show-completion` only prints the script.
"""


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join([_INTRODUCTION, *_sections(typer.main.get_command(app), "tonnage")])


def _sections(command: Any, path: str) -> Iterator[str]:
    """One section for a command and for each below it. Commands are typer's, whose classes moved between its versions."""
    yield f"## `{path}`\n"
    yield f"```console\n{_usage(command, path)}\n```\n"
    yield f"{command.help}\n"
    if command.epilog:
        yield f"{command.epilog}\n"
    shown = [parameter for parameter in command.params if not parameter.hidden]
    if shown:
        yield "| name | meaning |\n|---|---|"
        yield "\n".join(f"| `{_names(p)}` | {_meaning(p)} |" for p in shown) + "\n"
    for name, below in _commands(command).items():
        yield from _sections(below, f"{path} {name}")


def _commands(command: Any) -> dict[str, Any]:
    return getattr(command, "commands", {})


def _usage(command: Any, path: str) -> str:
    words = [path]
    if any(_is_option(parameter) for parameter in command.params):
        words.append("[OPTIONS]")
    words += [_names(parameter) for parameter in command.params if not _is_option(parameter)]
    if _commands(command):
        words.append("COMMAND")
    return " ".join(words)


def _is_option(parameter: Any) -> bool:
    return bool(parameter.opts[0].startswith("-"))


def _names(parameter: Any) -> str:
    value = parameter.name.upper()
    if not _is_option(parameter):
        value += "..." if parameter.nargs == -1 else ""
        return value if parameter.required else f"[{value}]"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return names if parameter.is_flag else f"{names} {value}"


def _meaning(parameter: Any) -> str:
    text = (parameter.help or "").replace("|", "\\|")
    default = parameter.default
    if isinstance(default, bool) or default == "" or not isinstance(default, int | float | str):
        return text
    return f"{text} Default: {default if isinstance(default, str) else f'{default:g}'}."


if __name__ == "__main__":
    print(page(), end="")
