"""Networks are written and read again; whatever else a file says is refused in one sentence."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InvalidFile, NotFound, UsageError
from tonnage.split.checked import checked_network
from tonnage.split.network import Input, Operation
from tonnage.split.sources.content import read_content
from tonnage.split.sources.network_file import load_network, plain_network, read_network, write_network
from tonnage.split.sources.profile_text import parse_profile

COSTS = st.dictionaries(st.sampled_from(["any", "cpu", "H200"]), st.floats(0, 1e3), min_size=1)
SIZES = st.integers(0, 2**50)
OPERATIONS = st.builds(
    Operation, id=st.none(), name=st.text(), kind=st.text(), seconds=COSTS, backward_seconds=COSTS, update_seconds=COSTS,
    weight_bytes=SIZES, state_bytes=SIZES, stash_bytes=SIZES, output_bytes=SIZES, pinned=st.text(),
    transfer_seconds=st.none() | st.floats(0, 10), weights=st.lists(st.sampled_from("ab")).map(tuple),
    together=st.none() | st.text(min_size=1) | st.integers(), is_backward=st.booleans(),
)  # fmt: skip
PLAIN: dict[str, Any] = {
    "format": "tonnage-network",
    "version": 1,
    "name": "net",
    "operations": [{"id": "a", "seconds": {"any": 1.0}}, {"id": 2, "seconds": {"any": 2}}],
    "edges": [["a", 2]],
}


def refusal(plain: Any) -> str:
    with pytest.raises(InvalidFile) as refused:
        load_network(plain, "net.json")
    assert refused.value.hint
    return refused.value.message


@given(
    st.lists(OPERATIONS, min_size=2, max_size=4),
    st.booleans(),
    st.lists(st.tuples(st.text(), SIZES, st.sets(st.sampled_from([0, 1]))), max_size=2),
    st.none() | st.sets(st.sampled_from([0, 1])),
)
def test_a_network_says_the_same_as_plain_data(
    operations: list[Operation], is_training: bool, inputs: list[tuple[str, int, set[int]]], outputs: set[int] | None
) -> None:
    named = [replace(operation, id=number) for number, operation in enumerate(operations)]
    network = checked_network(
        "net", named, [(0, 1)],
        is_training=is_training, weight_bytes={"a": 1, "b": 2}, inputs=inputs, outputs=outputs,
    )  # fmt: skip

    assert load_network(json.loads(json.dumps(plain_network(network))), "net.json") == network


@pytest.mark.parametrize("name", ["net.json", "net.json.gz"])
def test_a_network_is_the_same_after_writing_and_reading(tmp_path: Path, name: str) -> None:
    network = load_network(PLAIN, "net.json")

    write_network(network, tmp_path / name)

    assert read_network(tmp_path / name) == network
    assert (tmp_path / name).read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the network cannot be written to"):
        write_network(load_network(PLAIN, "net.json"), tmp_path / "missing" / "net.json")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"operations": [{"id": "a"}]}, "operation a of net.json: seconds is missing"),
        ({"operations": [{"seconds": {"any": 1}}]}, "operation number 0 of net.json: id is missing"),
        ({"operations": [{"id": "a", "seconds": {"any": "x"}}]}, "operation a of net.json: seconds.any must be a number"),
        ({"operations": [{"id": "a", "seconds": {"any": -1}}]}, "operation a of net.json: seconds on any is -1"),
        ({"operations": [{"id": "a", "seconds": {"any": float("nan")}}]}, "operation a of net.json: seconds on any is nan"),
        ({"operations": [{"id": "a", "seconds": {}, "state_bytes": 1.5}]},
         "operation a of net.json: state_bytes must be a whole number"),
        ({"operations": [{"id": "a", "seconds": {}, "bytes": 1}]}, "operation a of net.json: bytes is no field of it"),
        ({"operations": ["a"]}, "net.json: operations.0 must be an object"),
        ({"operations": []}, "net.json has no operations"),
        ({"operations": 3}, "net.json: operations must be a list"),
        ({"inputs": [{"name": "x", "nbytes": 1}]}, "net.json: inputs.0.readers is missing"),
        ({"inputs": [{"name": "x", "nbytes": -1, "readers": ["a"]}]}, "the input x of net.json has -1 bytes"),
        ({"inputs": [{"name": "x", "nbytes": 1, "readers": ["b"]}]},
         "net.json names b as reader of the input x, but has no such operation"),
        ({"outputs": ["b"]}, "net.json names b as output, but has no such operation"),
        ({"edges": [["a", 2, "a"]]}, "net.json: edges.0 must have two ends"),
        ({"edges": [["a", 3]]}, "net.json has an edge from a to 3, but no operation 3"),
        ({"edges": [["a", 2], [2, "a"]]}, "net.json has a cycle: a -> 2 -> a"),
        ({"version": "1"}, "net.json: version must be a whole number"),
        ({"version": 2}, "net.json was written by a newer Tonnage (network version 2, this one reads up to 1)"),
        ({"format": "other"}, "net.json is not a network of Tonnage: it has no format 'tonnage-network'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_sentence(change: dict[str, Any], told: str) -> None:
    assert refusal(PLAIN | change) == told


def test_ends_are_those_of_the_file_and_outputs_else_what_nothing_reads() -> None:
    inputs = [{"name": "x", "nbytes": 7, "readers": [2, "a"]}]
    assert load_network(PLAIN, "net.json").outputs == (1,)
    stated = load_network(PLAIN | {"inputs": inputs, "outputs": ["a", 2]}, "net.json")
    assert stated.inputs == (Input(name="x", nbytes=7, readers=(0, 1)),)
    assert stated.outputs == (0, 1)


def test_the_examples_of_the_documentation_are_read() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "reference", "networks.md").read_text()

    ours, profile = (page.partition(f"```{language}\n")[2].partition("```")[0] for language in ("json", "text"))

    assert len(load_network(json.loads(ours), "ours").operations) == 2
    assert len(parse_profile(profile, "profile").operations) == 2


# -- the bytes of a file --------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        read_network(tmp_path / "net.json")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (gzip.compress(json.dumps(PLAIN).encode(), mtime=0)[:-12], "is compressed, but damaged or only a part"),
        (b"\x1f\x8bnonsense", "is compressed, but damaged or only a part"),
        (b'{"format": "tonnage-network",', "is not JSON: .* in line 1"),
        (b"[" * 100_000, "is JSON that no network needs"),
        (b'{"version": ' + b"9" * 5000 + b"}", "is JSON that no network needs"),
        (b"\xff\xfe\x00", "is not text"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "net.json.gz"
    path.write_bytes(content)

    with pytest.raises(InvalidFile, match=told) as refused:
        read_network(path)

    assert refused.value.hint


@pytest.mark.parametrize(
    "content", [b"x" * 3_000_000, gzip.compress(b"x" * 3_000_000, mtime=0)], ids=["plain", "packed"]
)
def test_a_file_that_is_too_large_is_refused_before_all_of_it_is_unpacked(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "net.json").write_bytes(content)

    with pytest.raises(InvalidFile, match="holds more than 2 MiB, too much for a network"):
        read_content(tmp_path / "net.json", most_bytes=2 << 20)


def test_a_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="cannot be read: Is a directory"):
        read_content(tmp_path)
