"""Hardware as Tonnage sees it: the GPU catalogue, links, nodes and clusters, and what is in this machine."""

from pathlib import Path

from tonnage.hardware.catalogue import all_gpus, find_gpu, match_gpu
from tonnage.hardware.cluster import Cluster, Link, Node
from tonnage.hardware.gpu import Gpu, PeerLink, Price, Source, pcie_bytes_second
from tonnage.hardware.probe import LocalGpu, LocalMachine, probe

__all__ = [
    "Cluster",
    "Gpu",
    "Link",
    "LocalGpu",
    "LocalMachine",
    "Node",
    "PeerLink",
    "Price",
    "Source",
    "all_gpus",
    "find_gpu",
    "match_gpu",
    "pcie_bytes_second",
    "probe",
    "read_cluster",
]


def read_cluster(path: str | Path) -> Cluster:
    """The cluster that a file describes; raises `NotFound` or `InvalidFile`."""
    # Reading needs pydantic and PyYAML, which those who only import this package shall not wait for.
    from tonnage.hardware.cluster_file import read_cluster as read

    return read(path)
