"""`tonnage.estimate` is a room and a verb, whatever was imported before."""

import subprocess
import sys
from pathlib import Path

import pytest

from tonnage.program.trace import Origin, Phase
from tonnage.program.trace_file import write_trace
from tonnage.program.virtual_gpu.recorder import Recorder

CALL = "print(len(tonnage.estimate('run.trace', gpus=['H200']).estimates))"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    recorder = Recorder()
    recorder.allocate(1024, 0, Phase.SETUP)
    recorder.end_step()
    write_trace(recorder.trace(Origin(program="train.py", steps=1)), tmp_path / "run.trace")
    return tmp_path


@pytest.mark.parametrize(
    "before",
    ["", "import tonnage.estimate", "import tonnage.estimate.step", "from tonnage import estimate", CALL],
    ids=["nothing", "the room", "a module of it", "the name", "a call"],
)
def test_the_verb_can_be_called(folder: Path, before: str) -> None:
    program = f"import tonnage\n{before}\n{CALL}"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ["1"]), done.stderr


def test_the_name_can_be_imported_and_called_after_its_modules(folder: Path) -> None:
    program = "from tonnage.estimate.step import Step\nfrom tonnage import estimate\nprint(estimate('run.trace').mode)"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "training\n"), done.stderr


def test_a_verb_takes_what_its_function_takes(folder: Path) -> None:
    program = "import tonnage.estimate.step, tonnage\ntonnage.estimate('run.trace', gpu='H200')"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert "unexpected keyword argument 'gpu'" in done.stderr


def test_an_unknown_verb_is_no_attribute() -> None:
    import tonnage

    with pytest.raises(AttributeError, match="no attribute 'guess'"):
        tonnage.guess  # noqa: B018  (looking is the test)


@pytest.mark.parametrize("before", ["", "import tonnage.profile", "import tonnage.profile.indicators"])
def test_profile_is_a_room_and_a_verb(folder: Path, before: str) -> None:
    (folder / "trace.json").write_text(
        '[{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 5, "args": {"device": 0}}]'
    )
    program = f"import tonnage\n{before}\nprint(tonnage.profile('trace.json').indicators.device)"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "cuda\n"), done.stderr
