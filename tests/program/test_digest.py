"""The digest of a program: the same wherever it lies, another one as soon as anything of it changes."""

import shutil
from pathlib import Path

import pytest

from tonnage.errors import NotFound
from tonnage.program.digest import contents_digest, program_digest
from tonnage.program.own_files import own_files
from tonnage.program.program import Program, parse_program


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "here"
    (root / "models").mkdir(parents=True)
    (root / "train.py").write_text("import torch\nimport data\nfrom models import net\n")
    (root / "data.py").write_text("def load(): ...\n")
    (root / "models" / "__init__.py").write_text("")
    (root / "models" / "net.py").write_text("from . import blocks\nfrom .deep.inner import x\n")
    (root / "models" / "blocks.py").write_text("import models.unused_by_name\n")
    (root / "models" / "deep").mkdir()
    (root / "models" / "deep" / "inner.py").write_text("x = 1\n")
    (root / "other.py").write_text("not imported\n")
    return root


def digest(folder: Path, *arguments: str) -> str:
    return program_digest(parse_program(str(folder / "train.py"), arguments))


def test_it_is_a_sha256(folder: Path) -> None:
    assert digest(folder).startswith("sha256:")
    assert len(digest(folder)) == 71


def test_contents_that_were_read_have_the_same_digest(folder: Path) -> None:
    (folder / "models" / "deep.py").write_text("")  # as text before models/deep/, as a path behind it
    program = parse_program(str(folder / "train.py"), ("--epochs", "3"))
    files = {file.relative_to(folder).as_posix(): file.read_bytes() for file in own_files(folder / "train.py")}
    assert contents_digest(program, "train.py", dict(reversed(files.items()))) == program_digest(program)
    assert contents_digest(program, "train.py", files | {"data.py": b""}) != program_digest(program)


def test_another_folder_does_not_change_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(folder, tmp_path / "there")
    monkeypatch.chdir(tmp_path / "there")
    assert digest(tmp_path / "there") == digest(folder) == program_digest(parse_program("train.py"))


@pytest.mark.parametrize(
    "name", ["train.py", "data.py", "models/__init__.py", "models/blocks.py", "models/deep/inner.py"]
)
def test_every_module_of_its_own_counts(folder: Path, name: str) -> None:
    before = digest(folder)
    (folder / name).write_text((folder / name).read_text() + "# changed\n")
    assert digest(folder) != before


def test_a_file_that_is_not_imported_does_not_count(folder: Path) -> None:
    before = digest(folder)
    (folder / "other.py").write_text("changed\n")
    (folder / "new.py").write_text("")
    assert digest(folder) == before


def test_arguments_count(folder: Path) -> None:
    assert (
        len({digest(folder), digest(folder, "--lr", "1"), digest(folder, "--lr 1"), digest(folder, "1", "--lr")}) == 4
    )


def test_a_circle_of_imports_ends(folder: Path) -> None:
    (folder / "data.py").write_text("import train\n")
    assert digest(folder)


def test_a_module_that_is_no_python_still_counts(folder: Path) -> None:
    (folder / "data.py").write_text("def (:\n")
    before = digest(folder)
    (folder / "data.py").write_text("def (::\n")
    assert digest(folder) != before


def test_a_function_and_a_script_of_one_file_differ(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    by_name, by_file = parse_program("train:main"), parse_program("train.py:main")
    assert program_digest(by_name) == program_digest(by_file) != digest(folder)


def test_a_missing_file_is_not_found() -> None:
    with pytest.raises(NotFound):
        program_digest(Program(kind="function", target="no.such.module", function="f"))
