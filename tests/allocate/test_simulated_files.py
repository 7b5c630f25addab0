"""Traces and throughputs from files: what they say, and one sentence with a line where they say nonsense."""

import gzip
import json
import time
from pathlib import Path

import pytest
from speed_tables import table
from synthetic_trace import Workload, make_jobs, trace_lines

from tonnage.allocate.simulate.throughputs import parse_throughputs
from tonnage.allocate.simulate.trace_lines import parse_trace
from tonnage.errors import DoesNotFit, InvalidFile, NotFound
from tonnage.service.job_files import read_jobs, read_throughputs

GOOD = "wide\ttrain.py\t.\t-n\t0\t500\t1\t2.5\t-1.000000\t30\n"


def changed(number: int, text: str) -> str:
    fields = GOOD.rstrip("\n").split("\t")
    fields[number] = text
    return "\t".join(fields) + "\n"


def test_a_line_is_a_job() -> None:
    jobs = parse_trace([GOOD, "\n", changed(6, "8")], "jobs.trace", table())
    assert [table().classes[number].gpus for number in jobs.classes] == [1, 8]
    assert (jobs.steps[0], jobs.weights[0], jobs.arrival_seconds[0]) == (500.0, 2.5, 30.0)


def test_jobs_are_sorted_by_arrival_and_keep_their_order_otherwise() -> None:
    lines = [changed(9, "50"), changed(5, "1"), changed(5, "2"), changed(9, "0")]
    jobs = parse_trace(lines, "jobs.trace", table())
    assert jobs.arrival_seconds.tolist() == [0.0, 30.0, 30.0, 50.0]
    assert jobs.steps.tolist() == [500.0, 1.0, 2.0, 500.0]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    made = make_jobs(Workload(jobs=50), table(), table().gpus[-3:], 1)
    (tmp_path / "jobs.trace").write_text("".join(trace_lines(made, table())))
    read = read_jobs(tmp_path / "jobs.trace", table())
    assert read.classes.tolist() == made.classes.tolist()
    assert read.steps.tolist() == made.steps.tolist()


@pytest.mark.parametrize("compressed", [True, False])
def test_files_may_be_compressed_whatever_their_name(tmp_path: Path, compressed: bool) -> None:
    content = GOOD.encode()
    (tmp_path / "jobs").write_bytes(gzip.compress(content) if compressed else content)
    assert read_jobs(tmp_path / "jobs", table()).size == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (changed(5, "0"), "steps must be above 0"),
        (changed(5, "-3"), "steps must be from 0"),
        (changed(5, "nan"), "steps must be from 0 to 1e\\+15, not nan"),
        (changed(5, "many"), "steps must be a number, not 'many'"),
        (changed(9, "inf"), "the arrival must be from 0"),
        (changed(9, "-1"), "the arrival must be from 0"),
        (changed(7, "0"), "the weight must be above 0"),
        (changed(6, "0"), "GPUs must be a whole number from 1, not '0'"),
        (changed(6, "1.5"), "GPUs must be a whole number from 1, not '1.5'"),
        (changed(0, "wyde"), "'wyde' is not in the throughputs; did you mean 'wide'\\?"),
        (changed(6, "9" * 5000), "GPUs must be a whole number from 1, not '99999999999999999999'"),
        (changed(5, "1e13"), "1e13 steps take more than 30 years on the GPUs that suit it best"),
        ("wide\ttrain.py\n", "2 fields, not 10"),
    ],
)
def test_a_bad_line_is_named(line: str, problem: str) -> None:
    with pytest.raises(InvalidFile, match=f"jobs.trace:3: {problem}"):
        parse_trace([GOOD, GOOD, line, GOOD], "jobs.trace", table())


def test_a_class_without_a_speed_on_so_many_gpus_does_not_fit() -> None:
    with pytest.raises(DoesNotFit, match=r"jobs.trace:1: wide has no speed on 3 GPUs") as caught:
        parse_trace([changed(6, "3")], "jobs.trace", table())
    assert caught.value.hint == "the throughputs know it on 1, 2, 4, 8 GPUs"


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(InvalidFile, match=r"jobs.trace: no job is in it"):
        parse_trace(["\n"], "jobs.trace", table())


@pytest.mark.slow
def test_one_bad_line_among_a_million_is_found_in_seconds(tmp_path: Path) -> None:
    (tmp_path / "jobs.trace").write_text(GOOD * 999_999 + changed(5, "x"))
    begin = time.process_time()
    with pytest.raises(InvalidFile, match=r"jobs.trace:1000000: steps must be a number"):
        read_jobs(tmp_path / "jobs.trace", table())
    assert time.process_time() - begin < 10.0


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        read_jobs(tmp_path / "none.trace", table())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (gzip.compress(GOOD.encode() * 1000)[:-20], "the compressed file is damaged"),
        (b"wide\xff\xfe", "not text in UTF-8"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "jobs.trace").write_bytes(content)
    with pytest.raises(InvalidFile, match=problem):
        read_jobs(tmp_path / "jobs.trace", table())


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="cannot be read"):
        read_jobs(tmp_path, table())


# -- throughputs ----------------------------------------------------------------------------------------------------------

SPEEDS = {
    "v100": {
        "('a', 1)": {"null": 4.0, "('b', 1)": [3.0, 1.5], "('gone', 1)": [1.0, 1.0]},
        "('b', 1)": {"null": 2.0},
        "('a', 2)": {"null": 0.0, "('a', 2)": [1.0, 1.0]},
    },
    "k80": {"('a', 1)": {"null": 1.0}},
}


def test_speeds_are_read_alone_and_in_pairs() -> None:
    found = parse_throughputs(json.dumps(SPEEDS), "speeds.json")
    assert found.types == ("v100", "k80")
    assert [(each.name, each.gpus) for each in found.classes] == [("a", 1), ("b", 1), ("a", 2)]
    assert found.alone.tolist() == [[4.0, 1.0], [2.0, 0.0], [0.0, 0.0]]
    assert (found.paired[0, 0, 1], found.paired[0, 1, 0]) == (3.0, 1.5)


def test_a_class_that_does_not_run_alone_does_not_run_in_a_pair() -> None:
    assert parse_throughputs(json.dumps(SPEEDS), "speeds.json").paired[0, 2].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"v100": {"('a', 1)": {"null": -1.0}}}, r":4: v100, \('a', 1\), null: steps a second .* to 1e\+15, not -1"),
        ({"v100": {"('a', 1)": {"null": float("nan")}}}, ":4: .*not nan"),
        ({"v100": {"('a', 1)": {"null": None}}}, ":4: .*not None"),
        ({"v100": {"('a', 1)": {"('b', 1)": [1, 2]}}}, r":3: v100, \('a', 1\): the speed alone is missing"),
        ({"v100": {"('a', 1)": {"null": 1, "('a', 1)": [1]}}}, ":5: .*must be two speeds"),
        ({"v100": {"a": {"null": 1}}}, ":3: a: a class must look like"),
        ({"v100": {"('a', 0)": {"null": 1}}}, "a class must look like"),
        ({"v100": {"('a', 1" + "0" * 30 + ")": {"null": 1}}}, "a class must look like"),
        ({"v100": {"('a', 1)": {"null": 10**400}}}, ":4: .*from 0 to 1e\\+15"),
        ({"v100": {"('a', 1)": {"null": True}}}, ":4: .*not True"),
        ({"v100": {}}, ":2: v100: must be an object"),
        ([], ":1: must be an object"),
    ],
)  # fmt: skip
def test_nonsense_in_throughputs_is_named_with_its_line(document: object, problem: str) -> None:
    with pytest.raises(InvalidFile, match="speeds.json" + problem if problem.startswith(":") else problem):
        parse_throughputs(json.dumps(document, indent=1), "speeds.json")


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(InvalidFile, match=r"speeds.json: a number has too many digits"):
        parse_throughputs('{"v100": {"(\'a\', 1)": {"null": 1' + "0" * 5000 + "}}}", "speeds.json")


def test_throughputs_that_are_no_json_are_refused(tmp_path: Path) -> None:
    (tmp_path / "speeds.json").write_text('{"v100":\n {]}')
    with pytest.raises(InvalidFile, match=r"speeds.json:2: not JSON"):
        read_throughputs(tmp_path / "speeds.json")
