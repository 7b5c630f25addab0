"""Sample workloads: families of networks whose structure is a handful of numbers that move one at a time.

None of this imports torch before a network is built.
"""

from tonnage.benchmark.workloads.family import Family, Structure
from tonnage.benchmark.workloads.layer import Layer
from tonnage.benchmark.workloads.number import Number, Value
from tonnage.benchmark.workloads.point import CONDITIONS, Point, make_point
from tonnage.benchmark.workloads.program import as_program
from tonnage.benchmark.workloads.registry import FAMILIES, find_family
from tonnage.benchmark.workloads.step import Step, make_step, prepare_step
from tonnage.benchmark.workloads.workload import Workload

__all__ = [
    "CONDITIONS",
    "FAMILIES",
    "Family",
    "Layer",
    "Number",
    "Point",
    "Step",
    "Structure",
    "Value",
    "Workload",
    "as_program",
    "find_family",
    "make_point",
    "make_step",
    "prepare_step",
]
