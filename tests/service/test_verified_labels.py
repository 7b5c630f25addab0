"""From label.json to a deployment: verified, claimed once, given back if nothing came of it."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from placing import KEY, NOW, SERVERS, a_label
from serving import script

from tonnage.configure import label_json
from tonnage.configure.label import Label
from tonnage.configure.refusals import Expired, MalformedLabel, OtherProgram, Replayed, UnknownServer
from tonnage.configure.signing import sign
from tonnage.errors import InvalidFile, NotFound, Refused
from tonnage.program.digest import program_digest
from tonnage.program.program import Program, parse_program
from tonnage.service.label_program import program_path, read_program, write_program
from tonnage.service.labels import claimed, load_verified
from tonnage.service.seen_labels import SeenLabels


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return parse_program(str(script(tmp_path)))


@pytest.fixture
def path(tmp_path: Path, program: Program) -> Path:
    file = tmp_path / "label.json"
    file.write_bytes(label_json.dump(sign(a_label(program_digest=program_digest(program)), KEY)))
    return file


@pytest.fixture
def seen(tmp_path: Path) -> SeenLabels:
    return SeenLabels(tmp_path / "state" / "seen.json")


def load(path: Path, program: Program, seen: SeenLabels, now: float = NOW) -> Label:
    return load_verified(path, program, servers=SERVERS, seen=seen, clock=lambda: now)


def test_a_good_label_is_loaded_as_often_as_asked(path: Path, program: Program, seen: SeenLabels) -> None:
    assert load(path, program, seen) == load(path, program, seen)


def test_a_label_is_claimed_once(path: Path, program: Program, seen: SeenLabels) -> None:
    with claimed(path, program, servers=SERVERS, seen=seen, clock=lambda: NOW) as label:
        assert label.hardware.gpu == "H200"
    with pytest.raises(Replayed):
        load(path, program, SeenLabels(seen.path))


def test_a_deployment_that_fails_gives_the_label_back(path: Path, program: Program, seen: SeenLabels) -> None:
    with pytest.raises(RuntimeError), claimed(path, program, servers=SERVERS, seen=seen, clock=lambda: NOW):
        raise RuntimeError("no such image")
    load(path, program, seen)


def test_of_many_who_claim_one_label_one_gets_it(path: Path, program: Program, seen: SeenLabels) -> None:
    label = load(path, program, seen)
    outcomes: list[bool] = []

    def claim() -> None:
        try:
            SeenLabels(seen.path).claim(label, NOW)
        except Replayed:
            outcomes.append(False)
        else:
            outcomes.append(True)

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False] * 7 + [True]


def test_expired_labels_are_forgotten(path: Path, program: Program, seen: SeenLabels) -> None:
    label = load(path, program, seen)
    seen.claim(label, NOW)
    seen.claim(replace(label, id="f" * 32, expires_at=NOW + 90_000), NOW + 80_000)
    assert seen.ids() == {"f" * 32}


def test_a_changed_program_is_refused(path: Path, program: Program, seen: SeenLabels) -> None:
    Path(program.target).write_text("print('something else')\n")
    with pytest.raises(OtherProgram):
        load(path, program, seen)
    with pytest.raises(OtherProgram):
        load(path, replace(program, arguments=("--more",)), seen)


def test_a_late_label_is_refused(path: Path, program: Program, seen: SeenLabels) -> None:
    with pytest.raises(Expired):
        load(path, program, seen, now=NOW + 10**6)


def test_without_known_servers_everything_is_refused(path: Path, program: Program, seen: SeenLabels) -> None:
    with pytest.raises(UnknownServer):
        load_verified(path, program, servers={}, seen=seen)


@pytest.mark.parametrize("content", [b"", b"{}", b"x" * 100_000, b"\x00"])
def test_what_is_no_label_is_refused(path: Path, program: Program, seen: SeenLabels, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(MalformedLabel):
        load(path, program, seen)


def test_a_missing_label_is_not_found(tmp_path: Path, program: Program, seen: SeenLabels) -> None:
    with pytest.raises(NotFound, match="there is no label"):
        load(tmp_path / "none.json", program, seen)


@pytest.mark.parametrize("content", ["{", "[]", '{"a": "b"}'])
def test_a_damaged_store_lets_nothing_in(path: Path, program: Program, seen: SeenLabels, content: str) -> None:
    seen.path.parent.mkdir()
    seen.path.write_text(content)
    with pytest.raises(InvalidFile, match="is damaged"):
        load(path, program, seen)


def test_nothing_of_a_refused_label_is_remembered(path: Path, program: Program, seen: SeenLabels) -> None:
    with pytest.raises(Refused), claimed(path, program, servers={}, seen=seen, clock=lambda: NOW):
        raise AssertionError("must not be reached")
    assert seen.ids() == set()


def test_the_program_is_found_beside_the_label(path: Path, program: Program, seen: SeenLabels, tmp_path: Path) -> None:
    write_program(path, program)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in (path, program_path(path), Path(program.target)):
        file.rename(moved / file.name)
    assert load_verified(moved / path.name, servers=SERVERS, seen=seen, clock=lambda: NOW).server == "laboratory"
    assert read_program(moved / path.name).arguments == program.arguments


def test_another_program_beside_the_label_is_refused(path: Path, seen: SeenLabels, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("print('evil')\n")
    write_program(path, parse_program(str(tmp_path / "evil.py")))
    with pytest.raises(OtherProgram):
        load_verified(path, servers=SERVERS, seen=seen, clock=lambda: NOW)


@pytest.mark.parametrize("text", ["", "[]", '{"target": 1, "function": "", "arguments": []}', "{" * 100_000])
def test_a_damaged_file_beside_the_label_is_refused(path: Path, text: str) -> None:
    program_path(path).write_text(text)
    with pytest.raises(InvalidFile, match="names no program"):
        read_program(path)


def test_a_label_without_its_program_says_so(path: Path, seen: SeenLabels) -> None:
    with pytest.raises(NotFound, match="names the program of the label"):
        load_verified(path, servers=SERVERS, seen=seen, clock=lambda: NOW)
