"""The folder of models, and what to do about it when it changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tonnage.errors import InvalidFile, NotFound
from tonnage.serve.errors import UnknownThing
from tonnage.serve.polling import Poller
from tonnage.serve.repository import Repository, read_folder


def put(folder: Path, name: str, content: str = "x") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def test_versions_are_folders_with_whole_numbers(tmp_path: Path) -> None:
    for name in ("2/a", "10/a", "1/a", "0/a", "01/a", "-3/a", "v4/a", "٣/a", "9" * 30 + "/a"):
        put(tmp_path, f"m/{name}")
    put(tmp_path, "m/7")
    assert list(read_folder(tmp_path / "m").versions) == [1, 2, 10]


def test_hidden_folders_and_files_are_no_models(tmp_path: Path) -> None:
    put(tmp_path, ".git/1/a")
    put(tmp_path, "README")
    put(tmp_path, "m/1/a")
    assert Repository(tmp_path).names() == ["m"]


def test_pbtxt_comes_before_yaml(tmp_path: Path) -> None:
    put(tmp_path, "m/config.yaml")
    assert read_folder(tmp_path / "m").configuration == tmp_path / "m" / "config.yaml"
    put(tmp_path, "m/config.pbtxt")
    assert read_folder(tmp_path / "m").configuration == tmp_path / "m" / "config.pbtxt"


def test_a_repository_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no folder"):
        Repository(tmp_path / "none").names()


@pytest.mark.parametrize("name", ["..", "../m", "", ".", "m/1", "\0", "x" * 300])
def test_names_do_not_lead_out_of_the_repository(tmp_path: Path, name: str) -> None:
    put(tmp_path, "models/m/1/a")
    put(tmp_path, "m/1/a")
    with pytest.raises(UnknownThing):
        Repository(tmp_path / "models").model(name)


def test_a_change_of_any_file_shows(tmp_path: Path) -> None:
    file, other = put(tmp_path, "m/1/deep/weights"), put(tmp_path, "m/2/a")
    before = read_folder(tmp_path / "m")
    assert read_folder(tmp_path / "m") == before
    file.write_text("longer")
    longer = read_folder(tmp_path / "m")
    assert longer.stamps[1] != before.stamps[1]
    assert longer.stamps[2] == before.stamps[2]
    os.utime(other, ns=(1, 1))
    assert read_folder(tmp_path / "m").stamps[2] != longer.stamps[2]
    put(tmp_path, "m/config.pbtxt")
    assert read_folder(tmp_path / "m").stamps[0] != longer.stamps[0]


def test_a_file_that_another_takes_the_place_of_has_changed(tmp_path: Path) -> None:
    file = put(tmp_path, "m/1/a", "old")
    os.utime(file, ns=(5, 5))
    before = read_folder(tmp_path / "m")
    new = put(tmp_path, "new", "new")
    os.utime(new, ns=(5, 5))
    new.replace(file)
    assert read_folder(tmp_path / "m") != before


def test_links_to_nothing_and_hidden_files_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "m/1/a")
    before = read_folder(tmp_path / "m")
    (tmp_path / "m" / "1" / "gone").symlink_to("nowhere")
    put(tmp_path, "m/1/.a.part")
    assert read_folder(tmp_path / "m") == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    put(tmp_path, "m/1/a")
    (tmp_path / "m").chmod(0)
    try:
        with pytest.raises(InvalidFile, match="m cannot be read: Permission denied"):
            Repository(tmp_path).model("m").check()
    finally:
        (tmp_path / "m").chmod(0o755)


def test_a_folder_that_vanishes_while_it_is_read_has_a_problem(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="gone cannot be read: No such file"):
        read_folder(tmp_path / "gone").check()


# -- polling --------------------------------------------------------------------------------------------------------------


def test_what_is_still_being_copied_waits(tmp_path: Path) -> None:
    repository, poller = Repository(tmp_path), Poller()
    file = put(tmp_path, "m/1/model.onnx", "a")
    assert poller.changes(repository.models(), {}) == ([], [])
    file.write_text("ab")
    assert poller.changes(repository.models(), {}) == ([], [])
    file.write_text("abc")
    assert poller.changes(repository.models(), {}) == ([], [])
    assert poller.changes(repository.models(), {}) == (["m"], [])


def test_what_was_tried_waits_until_it_changes(tmp_path: Path) -> None:
    repository, poller = Repository(tmp_path), Poller()
    file = put(tmp_path, "m/1/model.onnx", "broken")
    tried = repository.models()
    for _ in range(3):
        assert poller.changes(repository.models(), tried) == ([], [])
    file.write_text("mended")
    assert poller.changes(repository.models(), tried) == ([], [])
    assert poller.changes(repository.models(), tried) == (["m"], [])


def test_a_folder_that_is_gone_is_unloaded(tmp_path: Path) -> None:
    repository, poller = Repository(tmp_path), Poller()
    file = put(tmp_path, "m/1/model.onnx")
    tried = repository.models()
    file.unlink()
    file.parent.rmdir()
    file.parents[1].rmdir()
    assert poller.changes(repository.models(), tried) == ([], ["m"])
    assert poller.changes(repository.models(), {}) == ([], [])
