"""Profiles of pipeline planners become networks."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tonnage.errors import InvalidFile
from tonnage.split.network import Input, Operation
from tonnage.split.sources.profile_text import read_profile

LINES = """\
node2 -- Conv2d(3, 8, kernel_size=(3, 3)) -- forward_compute_time=1.500, backward_compute_time=2.500, \
activation_size=4096.000, parameter_size=216.000
node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=1024.0, parameter_size=0.000
\tnode1 -- node2
"""


def written(folder: Path, text: str, name: str = "net.txt") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(InvalidFile) as refused:
        read_profile(written(folder, text))
    assert refused.value.hint
    return refused.value.message.replace(f"{folder}/", "")


@pytest.mark.parametrize("name", ["net.txt", "net.txt.gz"])
def test_a_profile_is_read_plain_or_compressed(tmp_path: Path, name: str) -> None:
    network = read_profile(written(tmp_path, LINES, name))

    assert (network.name, network.edges, network.is_training) == ("net", ((0, 1),), True)
    assert network.operations[1] == Operation(
        id="node2", name="Conv2d(3, 8, kernel_size=(3, 3))", kind="Conv2d", seconds={"any": 0.0015},
        backward_seconds={"any": 0.0025}, weight_bytes=216, state_bytes=216, stash_bytes=4096, output_bytes=4096,
    )  # fmt: skip


def test_a_profile_without_backward_times_is_of_inference(tmp_path: Path) -> None:
    network = read_profile(written(tmp_path, LINES.replace("backward_compute_time=2.500", "backward_compute_time=0")))

    assert not network.is_training
    assert network.operations[1].stash_bytes == network.operations[1].state_bytes == 0


def test_its_ends_are_the_inputs_that_it_names_and_what_nothing_reads(tmp_path: Path) -> None:
    network = read_profile(written(tmp_path, LINES))

    assert network.inputs == (Input(name="node1", nbytes=1024, readers=(0,)),)
    assert network.outputs == (1,)


def test_several_results_of_an_operation_are_added_up(tmp_path: Path) -> None:
    text = LINES.replace("activation_size=4096.000", "activation_size=[4096.000; 1000.000]")

    assert read_profile(written(tmp_path, text)).operations[1].output_bytes == 5096


def test_what_comes_after_the_costs_is_left_alone(tmp_path: Path) -> None:
    text = LINES.replace("parameter_size=216.000", "parameter_size=216.000 -- stage_id=3")

    assert read_profile(written(tmp_path, text)).operations[1].weight_bytes == 216


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("=1.500", "=-1.500", "net.txt, line 1: forward_compute_time of operation node2 is -1.500"),
        ("=1.500", "=nan", "net.txt, line 1: forward_compute_time of operation node2 is nan"),
        ("=1.500", "=soon", "net.txt, line 1: forward_compute_time of operation node2 is 'soon'"),
        (", parameter_size=216.000", "", "net.txt, line 1: operation node2 has no parameter_size"),
        ("\tnode1 -- node2", "\tnode1 -- node7", "net.txt has an edge from node1 to node7, but no operation node7"),
        ("\tnode1 -- node2", "some words", "net.txt, line 3 is neither an operation nor an edge"),
        ("node1 -- Input0", "node2 -- Input0", "net.txt has two operations with the id node2"),
    ],
)
def test_bad_lines_are_told_with_the_operation(tmp_path: Path, before: str, after: str, told: str) -> None:
    assert refusal(tmp_path, LINES.replace(before, after)) == told
