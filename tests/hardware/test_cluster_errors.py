"""Every wrong cluster file gets one clear sentence with its file, line and field."""

from pathlib import Path

import pytest

from tonnage.errors import InvalidFile, NotFound
from tonnage.hardware import read_cluster

NODE = "nodes:\n  - name: a\n    cpu: {cores: 8}\n    memory: 64 GiB\n"

TWO = NODE + "    count: 2\n"


def complaint(folder: Path, content: str | bytes) -> InvalidFile:
    path = folder / "cluster.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidFile) as caught:
        read_cluster(path)
    return caught.value


BROKEN = {
    "unknown_gpu": (
        NODE + "    gpus:\n      - count: 8\n        model: H20O\n",
        ":7: nodes[0].gpus[0].model: unknown GPU 'H20O'; did you mean H200?",
    ),
    "unknown_field": (NODE + "    gpu: []\n", ":5: nodes[0].gpu: there is no such field here; did you mean gpus?"),
    "missing_field": ("nodes:\n  - name: a\n    memory: 1 GiB\n", ":2: nodes[0].cpu: is missing"),
    "no_nodes": ("name: x\n", ":1: nodes: is missing"),
    "empty_nodes": ("nodes: []\n", ":1: nodes: must not be empty"),
    "negative_count": (NODE + "    count: -2\n", ":5: nodes[0].count: must be at least 1, not -2"),
    "count_as_text": (NODE + "    count: '2'\n", ":5: nodes[0].count: must be a whole number, not '2'"),
    "yes_as_count": (NODE + "    count: yes\n", ":5: nodes[0].count: must be a whole number, not True"),
    "name_read_as_no": (NODE.replace("name: a", "name: no"), ":2: nodes[0].name: must be text, not False"),
    "strange_name": (NODE.replace("name: a", "name: a/b"), ":2: nodes[0].name: must be made of letters"),
    "size_without_unit": (
        NODE.replace("64 GiB", "64"),
        ":4: nodes[0].memory: must be a size with its unit, such as 512 GiB, not 64",
    ),
    "zero_memory": (NODE.replace("64 GiB", "0 GiB"), ":4: nodes[0].memory: must be more than 0"),
    "repeated_name": (NODE + NODE.removeprefix("nodes:\n"), ":5: nodes[1].name: the name 'a' is taken: nodes[0].name"),
    "reserved_name": (NODE.replace("name: a", "name: all"), ":2: nodes[0].name: the name 'all' is taken"),
    "unknown_node_in_link": (
        NODE + "links:\n  - kind: ethernet\n    bandwidth: 1 GB/s\n    between: [a, bb]\n",
        ":8: links[0].between[1]: nothing here is called 'bb'",
    ),
    "unknown_gpu_in_link": (
        NODE + "    links: [{kind: nvlink, between: [gpu0, gpu1]}]\n",
        ":5: nodes[0].links[0].between[0]: nothing here is called 'gpu0'",
    ),
    "link_with_one_end": (NODE + "links:\n  - {kind: e, bandwidth: 1 GB/s}\n", ":6: links[0]: a link needs at least"),
    "link_to_itself": (
        NODE + "    gpus: [{model: T4}]\n    links: [{kind: pcie, between: [gpu0, gpu0]}]\n",
        ":6: nodes[0].links[0].between: an end is named twice",
    ),
    "no_such_nvlink": (
        NODE + "    gpus: [{model: T4, count: 2}]\n    links:\n      - kind: nvlink\n",
        ":7: nodes[0].links[0].kind: T4 has no nvlink",
    ),
    "no_bandwidth": (
        NODE.replace("name: a", "name: a\n    count: 2") + "links:\n  - {kind: ethernet}\n",
        ":7: links[0]: bandwidth is missing",
    ),
    "wrong_matrix": (
        NODE.replace("name: a", "name: a\n    count: 2")
        + "links:\n  - kind: e\n    bandwidth_matrix: [[null, 1 GB/s]]\n",
        ":8: links[0].bandwidth_matrix: must have 2 rows of 2 entries",
    ),
    "wrong_latency_matrix": (
        TWO + "links:\n  - kind: e\n    bandwidth: 1 GB/s\n    latency_matrix: [[null, 1 us]]\n",
        ":9: links[0].latency_matrix: must have 2 rows of 2 entries",
    ),
    "latency_twice": (
        TWO + "links:\n  - kind: e\n    latency: 1 us\n    bandwidth: 1 GB/s\n    latency_matrix: []\n",
        ":10: links[0].latency_matrix: give either latency or latency_matrix, not both",
    ),
    "latency_without_unit": (
        TWO + "links:\n  - kind: e\n    bandwidth: 1 GB/s\n    latency_matrix: [[null, 1], [1, null]]\n",
        ":9: links[0].latency_matrix[0][1]: must be a time with its unit, such as 2 us, not 1",
    ),
    "matrix_of_a_bus": (
        NODE + "    count: 3\nlinks:\n  - kind: e\n    bandwidth: 1 GB/s\n    shared: true\n    latency_matrix: []\n",
        ":9: links[0].shared: a matrix is for links that each pair has to itself",
    ),
    "speed_of_nothing": (NODE + "    speed: 0\n", ":5: nodes[0].speed: must be more than 0.0, not 0"),
    "infinite_speed": (NODE + "    speed: .inf\n", ":5: nodes[0].speed: must be a number, not inf"),
    "speed_as_text": (NODE + "    speed: fast\n", ":5: nodes[0].speed: must be a number, not 'fast'"),
    "negative_idle_power": (NODE + "    idle_watts: -1\n", ":5: nodes[0].idle_watts: must be at least 0.0, not -1"),
    "idle_above_work": (
        NODE + "    power_watts: 90\n    idle_watts: 91\n",
        ":6: nodes[0].idle_watts: is more than power_watts, 90",
    ),
    "address_as_number": (NODE + "    address: 10\n", ":5: nodes[0].address: must be an address as text, or a list"),
    "address_of_nothing": (NODE + "    address: ''\n", ":5: nodes[0].address: must be a host name or IP address"),
    "address_as_url": (NODE + "    address: http://a\n", ":5: nodes[0].address: must be a host name or IP address"),
    "port_too_high": (NODE + "    address: a:70000\n", ":5: nodes[0].address: 70000 is no port"),
    "one_address_for_two": (TWO + "    address: a\n", ":6: nodes[0].address: needs 2 addresses"),
    "three_addresses_for_two": (TWO + "    address: [a, b, c]\n", ":6: nodes[0].address: has 3 addresses for 2 nodes"),
    "range_too_long": (TWO + "    address: a[1-3]\n", ":6: nodes[0].address: [1-3] stands for 3 addresses"),
    "two_ranges": (TWO + "    address: a[1-2].b[1-2]\n", ":6: nodes[0].address: has 2 ranges"),
    "unknown_inputs": (NODE + "inputs: b\n", ":5: inputs: nothing here is called 'b'"),
    "several_inputs": (TWO + "inputs: a\n", ":6: inputs: 'a' stands for 2 nodes; name one, such as a-0"),
    "outputs_at_a_switch": (NODE + "switches: [s]\noutputs: s\n", ":6: outputs: 's' is a switch; name a node"),
    "duplicate_key": (NODE + "    memory: 1 GiB\n", ":5: 'memory' is given twice; first on line 4"),
    "tab": ("nodes:\n\t- name: a\n", ":2: a tab is used for indentation"),
    "broken_yaml": ("nodes: [a, b\n", "not valid YAML"),
    "unknown_tag": ("nodes: !!python/object:os.system {}\n", "not valid YAML"),
    "second_document": (NODE + "---\n" + NODE, ":5: a second document starts here"),
    "list_on_top": ("- a\n- b\n", ":1: must be a mapping"),
    "text_on_top": ("hello\n", ":1: must be a mapping"),
    "empty": ("", "the file is empty"),
    "only_a_comment": ("# nothing\n", "the file is empty"),
    "wrong_encoding": ("name: caf\xe9\n".encode("latin-1"), ":1: not UTF-8 text (byte 0xe9)"),
    "binary": (b"\x00\x01\x02", "not valid YAML"),
    "deep_nesting": ("nodes: " + "[" * 5000 + "]" * 5000, "nested more than 32 levels deep"),
    "self_reference": ("nodes: &a [*a]\n", "an alias refers to the value that contains it"),
    "huge": ("#" * 5_000_000, "too many for a file of this kind"),
}


@pytest.mark.parametrize(("content", "sentence"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_gets_one_clear_sentence(tmp_path: Path, content: str | bytes, sentence: str) -> None:
    error = complaint(tmp_path, content)
    assert error.message.startswith(str(tmp_path / "cluster.yaml") + ":")
    assert sentence in error.message
    assert "\n" not in error.message


def test_an_alias_bomb_is_refused_before_it_expands(tmp_path: Path) -> None:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert "aliases expand to more than 500000 values" in complaint(tmp_path, "\n".join(lines)).message


def test_many_aliases_are_refused(tmp_path: Path) -> None:
    text = "a: &a 1\nnodes: [" + "*a, " * 300 + "]"
    assert "more than 200 aliases" in complaint(tmp_path, text).message


def test_further_problems_are_named_in_the_hint(tmp_path: Path) -> None:
    error = complaint(tmp_path, NODE + "    count: 0\n    engine: 7\n")
    assert error.hint == "more to correct: nodes[0].engine (line 6)"


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        read_cluster(tmp_path / "missing.yaml")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="cannot be read"):
        read_cluster(tmp_path)
