"""The openb files: what is read, and what is refused with its line."""

import pytest

from tonnage.allocate.packing.openb import parse_nodes, parse_pods
from tonnage.errors import InvalidFile

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\n"


def test_nodes_are_read_also_those_without_gpus() -> None:
    found = parse_nodes(f"{NODES}a,64000,1024,2,P100\nb,8000,512,0,nan\n".splitlines(), "nodes.csv")
    assert [(n.name, n.gpu_count, n.model) for n in found] == [("a", 2, "P100"), ("b", 0, "")]


def test_models_are_separated_by_bars() -> None:
    (found,) = parse_pods(f"{PODS}a,1,2,1,460,V100M16|V100M32,LS\n".splitlines(), "pods.csv")
    assert (found.gpu_milli, found.models) == (460, {"V100M16", "V100M32"})


def test_a_list_without_models_accepts_all() -> None:
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,2,8,1000\n"
    (found,) = parse_pods(text.splitlines(), "pods.csv")
    assert found.accepts("T4")


def test_columns_may_come_in_any_order() -> None:
    (found,) = parse_nodes(["gpu,model,sn,memory_mib,cpu_milli\n", "4,T4,a,5,6\n"], "nodes.csv")
    assert (found.gpu_count, found.memory_mib, found.cpu_milli) == (4, 5, 6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "pods.csv is empty"),
        ("name,cpu_milli,memory_mib,num_gpu\n", "no column gpu_milli"),
        (PODS, "no pod asks for a GPU"),
        (f"{PODS}a,1,1,0,0,,LS\n", "no pod asks for a GPU"),
        (f"{PODS}a,1,1,1,500,,LS\nb,-4,1,1,500,,LS\n", "pods.csv, line 3: cpu_milli must be from 0"),
        (f"{PODS}a,1,much,1,500,,LS\n", "line 2: memory_mib must be a whole number, not 'much'"),
        (f"{PODS}a,1,1e3,1,500,,LS\n", "memory_mib must be a whole number"),
        (f"{PODS}a,1,,1,500,,LS\n", "memory_mib must be a whole number, not ''"),
        (f"{PODS}a,1,99999999999999999999,1,500,,LS\n", "must be from 0 to 2^40"),
        (f"{PODS}a,1,1,1,0,,LS\n", "gpu_milli must be from 1 to 1000"),
        (f"{PODS}a,1,1,1,1001,,LS\n", "gpu_milli must be from 1 to 1000"),
        (f"{PODS}a,1,1,2,500,,LS\n", "gpu_milli must be 1000 for a pod with 2 GPUs, not 500"),
        (f"{PODS}a,1,1,1\n", "line 2: 4 values, but 7 columns"),
    ],
)
def test_a_bad_list_of_pods_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        parse_pods(text.splitlines(), "pods.csv")
    assert words in caught.value.message


def test_a_cluster_without_gpus_is_refused() -> None:
    with pytest.raises(InvalidFile, match="no node has a GPU"):
        parse_nodes(f"{NODES}a,1,1,0,\n".splitlines(), "nodes.csv")


def test_a_node_with_an_impossible_number_of_gpus_is_refused() -> None:
    with pytest.raises(InvalidFile, match="line 2: gpu must be at most 1024, not 5000000"):
        parse_nodes(f"{NODES}a,1,1,5000000,T4\n".splitlines(), "nodes.csv")


def test_one_bad_line_in_many_is_named() -> None:
    lines = [PODS, *["a,1,1,1,500,,LS\n"] * 50_000, "a,1,1,x,500,,LS\n"]
    with pytest.raises(InvalidFile, match="line 50002: num_gpu"):
        parse_pods(lines, "pods.csv")
