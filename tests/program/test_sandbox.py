"""A capture leaves nothing behind: no file, no process, no changed folder. What a program writes it can read back."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from capturing import capture_script

from tonnage.program import isolation

pytest.importorskip("torch")

ENDS_ON_THE_GPU = "\nwith torch.no_grad():\n    nn.Linear(4, 4).cuda()(torch.ones(2, 4).cuda())\n"


def contents(folder: Path) -> dict[str, tuple[bytes | str, float]]:
    """Everything below a folder, with the time of its last change."""
    found: dict[str, tuple[bytes | str, float]] = {}
    for path in sorted(folder.rglob("*")):
        content: bytes | str = os.readlink(path) if path.is_symlink() else b"" if path.is_dir() else path.read_bytes()
        found[str(path.relative_to(folder))] = (content, path.lstat().st_mtime)
    return found


def make_workplace(folder: Path) -> None:
    (folder / "old" / "deep").mkdir(parents=True)
    (folder / "old" / "deep" / "a.txt").write_text("a")
    (folder / "old" / "b.txt").write_text("b")
    (folder / "notes.txt").write_text("first\n")
    (folder / "old.txt").write_text("outside")
    (folder / "config.json").write_text('{"size": 1}')
    (folder / "link.txt").symlink_to("notes.txt")


WRITING = """
import json, logging, os, pathlib, pickle, shutil, tempfile
import numpy as np

def write(path, mode="w", text="new"):
    with open(path, mode) as file:
        file.write(text)

def read(path):
    with open(path) as file:
        return file.read()

# open: w, x, a, r+
write("new.txt")
assert read("new.txt") == "new"
write("fresh.txt", "x")
try:
    write("config.json", "x")
    raise AssertionError("x must refuse a file that exists")
except FileExistsError:
    pass
write("notes.txt", "a", "second")
assert read("notes.txt") == "first\\nsecond"
with open("config.json", "r+") as file:
    settings = json.load(file)
    file.seek(0)
    json.dump({**settings, "more": 2}, file)
assert json.loads(read("config.json")) == {"size": 1, "more": 2}
descriptor = os.open("low.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
os.write(descriptor, b"low")
os.close(descriptor)
assert read("low.txt") == "low"
write("link.txt", "a", "through a link")

# folders
run = pathlib.Path("runs/first")
run.mkdir(parents=True, exist_ok=True)
(run / "log.txt").write_text("1")
assert (run / "log.txt").read_text() == "1" and os.listdir("runs") == ["first"]
os.makedirs("a/b/c")
os.makedirs("a/b/c", exist_ok=True)
assert os.path.isdir("a/b/c")
assert {"new.txt", "old", "notes.txt", "runs"} <= set(os.listdir("."))
assert {"new.txt", "notes.txt"} <= {p.name for p in pathlib.Path(".").glob("*.txt")}

# copies, moves, deletions
shutil.copy("notes.txt", "copy.txt")
shutil.copy2("new.txt", "best.txt")
shutil.copytree("old", "older")
assert read("older/deep/a.txt") == "a"
shutil.move("copy.txt", "moved.txt")
os.rename("fresh.txt", "renamed.txt")
os.replace("notes.txt", "replaced.txt")
assert read("replaced.txt").startswith("first")
assert not any(map(os.path.exists, ("copy.txt", "fresh.txt", "notes.txt")))
os.remove("config.json")
assert not os.path.exists("config.json") and "config.json" not in os.listdir(".")
write("old/c.txt")
assert sorted(os.listdir("old")) == ["b.txt", "c.txt", "deep"]
os.rename("old", "renamed")
assert read("renamed/deep/a.txt") == "a" and read("renamed/c.txt") == "new" and not os.path.exists("old")
os.replace("renamed", "old")
assert sorted(os.listdir("old")) == ["b.txt", "c.txt", "deep"] and not os.path.exists("renamed")
shutil.rmtree("old")
assert not any(map(os.path.exists, ("old", "old/b.txt", "old/deep/a.txt")))
os.mkdir("old")
assert os.listdir("old") == []
shutil.rmtree("runs")

# libraries
np.save("array.npy", np.arange(5))
assert np.load("array.npy")[2] == 2
np.savez("arrays.npz", a=np.arange(5))
np.arange(5).tofile("array.bin")
with open("object.pkl", "wb") as file:
    pickle.dump({"a": 1}, file)
handler = logging.FileHandler("train.log")
logging.getLogger("training").addHandler(handler)
logging.getLogger("training").warning("a word")
handler.close()
assert "a word" in read("train.log")
with tempfile.TemporaryDirectory() as folder:
    write(folder + "/inside.txt")
    assert os.listdir(folder) == ["inside.txt"]
assert not os.path.exists(folder)
with tempfile.NamedTemporaryFile("w") as file:
    file.write("x")
    file.flush()
    assert read(file.name) == "x"
torch.save({"a": torch.ones(3)}, "state.pt")
assert torch.load("state.pt")["a"].sum() == 3

# another working folder, one that is not really there
here = os.getcwd()
os.makedirs("outputs/today")
os.chdir("outputs/today")
write("result.txt")
assert os.listdir(".") == ["result.txt"] and read("../../old.txt") == "outside"
os.chdir("../..")
assert os.getcwd() == here
assert read("outputs/today/result.txt") == "new"
"""


def test_a_program_may_write_delete_and_rename_and_changes_nothing(tmp_path: Path) -> None:
    workplace = tmp_path / "workplace"
    make_workplace(workplace)
    before = contents(workplace)
    program = f"import os\nos.chdir({str(workplace)!r})\n{WRITING}{ENDS_ON_THE_GPU}"
    capture_script(tmp_path / "program", program)
    assert contents(workplace) == before
    assert [p.name for p in (tmp_path / "program").iterdir()] == ["train.py"]


PAST_PYTHON = """
import os, sqlite3, subprocess
subprocess.run("mkdir -p made/by/shell && echo text > made/by/shell/file && rm old.txt", shell=True, check=True)
assert open("made/by/shell/file").read() == "text\\n" and not os.path.exists("old.txt")
database = sqlite3.connect("runs.db")
database.execute("create table runs (name)")
database.commit()
assert subprocess.run(["touch", "%s"]).returncode != 0
open("made/by/shell/python", "w").close()
"""


def can_isolate(folder: Path) -> bool:
    command = [sys.executable, "-S", "-E", isolation.__file__, str(folder), ""]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_commands_and_compiled_code_change_nothing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe, workplace, elsewhere = tmp_path / "probe", tmp_path / "workplace", tmp_path / "elsewhere"
    for folder in (probe, workplace, elsewhere):
        folder.mkdir()
    if not can_isolate(probe):
        pytest.skip("this system has no namespaces for its users")
    make_workplace(workplace)
    before = contents(workplace)
    monkeypatch.chdir(workplace)
    capture_script(tmp_path / "program", PAST_PYTHON % (elsewhere / "file") + ENDS_ON_THE_GPU)
    assert contents(workplace) == before
    assert list(elsewhere.iterdir()) == []


def test_folders_to_cover_are_not_nested_and_never_hold_the_scratch(tmp_path: Path) -> None:
    scratch, work, deep = tmp_path / "tmp" / "scratch", tmp_path / "work", tmp_path / "work" / "deep"
    for folder in (scratch, deep):
        folder.mkdir(parents=True)
    found = isolation.outermost([str(deep), str(work), str(tmp_path), "/", str(scratch.parent)], str(scratch))
    assert found == [str(work)]


STARTING = """
import multiprocessing, os, subprocess, sys, time

def wait():
    time.sleep(1000)

if __name__ == "__main__":
    waiting = [sys.executable, "-c", "import time; time.sleep(1000)", sys.argv[1]]
    subprocess.Popen(waiting)
    subprocess.Popen(waiting, start_new_session=True)
    subprocess.Popen(["sh", "-c", f"sleep 1000 & : {sys.argv[1]}"])
    multiprocessing.Process(target=wait).start()
    os.environ["TONNAGE_TEST_LEAK"] = "1"
    os.environ["PATH"] = ""
    os.chdir("/")
    os.umask(0)
"""


def processes_below(mark: str) -> list[int]:
    """Processes that have the mark in their command line or, as orphans do, in the folder they were started in."""
    found = []
    for process in psutil.process_iter():
        try:
            if mark in " ".join(process.cmdline()) or mark in process.environ().get("TONNAGE_TEST_MARK", ""):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_background_processes_end_with_the_capture_and_the_parent_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"tonnage-test-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("TONNAGE_TEST_MARK", mark)
    before = dict(os.environ), os.getcwd()
    capture_script(tmp_path, STARTING + ENDS_ON_THE_GPU, mark)
    assert processes_below(mark) == []
    assert (dict(os.environ), os.getcwd()) == before
