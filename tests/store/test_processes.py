"""Several processes with one benchmark database, and processes that die."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from store_examples import H200, kernel, measurement

from tonnage.errors import Unreachable
from tonnage.store import location as location_module
from tonnage.store.database import open_database

HERE = str(Path(__file__).parent)
START = f"""
import sys
sys.path.insert(0, {HERE!r})
from store_examples import H200, host, kernel, measurement
from tonnage.store import writing
from tonnage.store.database import open_database
"""
# Waits for the others at the door, so that all open the fresh database at the same moment.
WRITER = (
    START
    + """
input()
with open_database(sys.argv[1]) as database:
    for number in range(20):
        database.add(H200, measurement(f"{sys.argv[2]}-{number}"), [kernel(position=i) for i in range(50)])
"""
)
# Stops in the middle of its second addition: the kernels are in, the hosts are not.
VICTIM = (
    START
    + """
insert = writing.insert_rows
def insert_and_stop(connection, table, rows):
    if table.__tablename__ == "hosts" and rows:
        print("in the middle", flush=True)
        input()
    insert(connection, table, rows)
writing.insert_rows = insert_and_stop
with open_database(sys.argv[1]) as database:
    database.add(H200, measurement("whole"), [kernel()])
    database.add(H200, measurement("half"), [kernel(position=i) for i in range(5000)], [host()])
"""
)


def start(code: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_processes_open_and_write_at_once(location: str) -> None:
    writers = [start(WRITER, location, name) for name in "abcd"]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=120)
    assert [writer.returncode for writer in writers] == [0, 0, 0, 0]
    with open_database(location) as database:
        assert database.counts() == {
            "environments": 1, "operators": 1, "measurements": 80, "kernels": 4000, "hosts": 0,
        }  # fmt: skip


def test_a_killed_process_loses_only_what_it_was_adding(location: str) -> None:
    victim = start(VICTIM, location)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "in the middle\n"
    victim.send_signal(signal.SIGKILL)
    victim.communicate(timeout=60)
    with open_database(location) as database:
        assert [row.key for _, row in database.measurements()] == ["whole"]
        assert database.counts()["kernels"] == 1
        assert database.add(H200, measurement("half"), [kernel()])


def test_a_writer_that_waits_too_long_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location_module, "BUSY_SECONDS", 0.05)
    path = tmp_path / "benchmark.db"
    with open_database(path) as first, open_database(path) as second, first.writing():
        assert second.counts()["measurements"] == 0
        with pytest.raises(Unreachable, match="another process has been writing"):
            second.add(H200, measurement())
