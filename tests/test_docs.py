"""The documents hold: links lead somewhere, commands exist, code compiles, tables agree with the code."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tonnage import errors
from tonnage.cli.main import app
from tonnage.hardware import all_gpus
from tonnage.store.tables import TABLES

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "changelog.d" / "README.md"],
    key=lambda path: path.relative_to(ROOT).as_posix(),
)
# Written by benchmarks/accuracy/memory.py --write, from measured runs.
ACCURACY = ROOT / "docs" / "reference" / "accuracy-memory.md"

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())


def text_without_code(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """Code blocks of these languages, without the indentation that a list gives them."""
    for indent, language, body in re.findall(
        r"^( *)```(\w*)\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL
    ):
        if language in languages:
            yield re.sub(f"^{indent}", "", body, flags=re.MULTILINE)


def links(page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", text_without_code(page))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text_without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    return target.exists() and (not anchor or anchor in anchors(target))


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in links(page) if not leads_somewhere(page, link)]
    if broken and not ACCURACY.exists() and all(link.endswith(ACCURACY.name) for link in broken):
        pytest.xfail("the accuracy page is not there: python benchmarks/accuracy/memory.py --write")
    assert broken == []


@pytest.mark.parametrize("folder", ["how-to", "reference", "explanation"])
def test_the_index_names_every_page(folder: str) -> None:
    index = ROOT / "docs" / "index.md"
    named = {(index.parent / link).resolve() for link in links(index)}
    assert set((ROOT / "docs" / folder).glob("*.md")) <= named


# -- commands -------------------------------------------------------------------------------------------------------------


def typed_commands(page: Path) -> Iterator[list[str]]:
    """Every `tonnage ...` that a reader is asked to type, as words; pipes, redirections and comments left out."""
    for block in blocks(page, "console", "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(tonnage\b.*)", line)
            if command and not re.search(r"\[OPTIONS\]|COMMAND", line):
                yield _words(command[1])
    for command in re.findall(r"`(tonnage [a-z-][^`]*)`", text_without_code(page)):
        yield _words(command)


def _words(command: str) -> list[str]:
    words = shlex.split(command, comments=True)
    ends = (index for index, word in enumerate(words) if word.endswith(";") or word in ("|", "||", "&&", ">"))
    return words[1 : next(ends, len(words))]


def unknown_words(words: list[str]) -> list[str]:
    """Commands and options that do not exist. Parsed by hand: click would run what `--install-completion` does."""
    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    if words and hasattr(command, "default_command") and words[0] not in ("-h", "--help"):
        command = command.commands[command.default_command]
    own = words[: words.index("--")] if "--" in words else words
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [
        word for word in own if word.startswith("-") and word.partition("=")[0] not in options | {"-h", "--help"}
    ]
    if getattr(command, "commands", None):
        unknown += [word for word in own if not word.startswith("-")]
    return unknown


@every_page
def test_commands_exist(page: Path) -> None:
    assert {" ".join(words): unknown_words(words) for words in typed_commands(page) if unknown_words(words)} == {}


def test_the_readme_shows_commands() -> None:
    assert len(list(typed_commands(ROOT / "README.md"))) > 10


@pytest.mark.parametrize("command", ["estimat train.py", "estimate train.py --bath 8", "cluster chek x", "--versoin"])
def test_a_misspelt_command_is_noticed(command: str) -> None:
    assert unknown_words(command.split()) != []


# -- code and tables ------------------------------------------------------------------------------------------------------


@every_page
def test_python_compiles(page: Path) -> None:
    for number, block in enumerate(blocks(page, "python")):
        compile(block, f"{page.name}, block {number}", "exec")


def rows(page: Path, first: str) -> list[list[str]]:
    """The rows of tables whose first cell matches."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.read_text().splitlines()]
    return [row for row in cells if len(row) > 1 and re.fullmatch(first, row[0])]


def error_classes() -> list[type[errors.TonnageError]]:
    return [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.TonnageError)]


def test_exit_codes_of_the_readme_are_those_of_the_errors() -> None:
    documented = {int(row[0]) for row in rows(ROOT / "README.md", r"\d+")}
    assert documented == {0, 130} | {error.exit_code for error in error_classes()}


def test_the_page_of_exit_codes_names_every_error() -> None:
    page = ROOT / "docs" / "reference" / "exit-codes.md"
    documented = {row[0].strip("`"): (int(row[1]), int(row[2])) for row in rows(page, r"`[A-Z]\w+`")}
    assert documented == {error.__name__: (error.exit_code, error.http_status) for error in error_classes()}


def test_the_readme_counts_the_gpus() -> None:
    assert f"any of {len(all_gpus())} GPUs" in (ROOT / "README.md").read_text()


def test_the_page_of_the_benchmark_database_names_every_column() -> None:
    text = (ROOT / "docs" / "reference" / "benchmark-database.md").read_text()
    columns = {column.name for table in TABLES for column in table.__table__.columns} - {"id"}
    named = {re.sub(r"_seconds_(mean|deviation)$", "_seconds_*", column) for column in columns}
    assert [column for column in sorted(named) if f"`{column}`" not in text] == []
