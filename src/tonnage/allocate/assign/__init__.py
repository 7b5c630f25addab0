"""Solvers for many tasks on many GPUs: prices and bounds, packing, local search, exact completion times, re-planning."""

from tonnage.allocate.assign.completion import least_total_completion
from tonnage.allocate.assign.makespan import least_makespan
from tonnage.allocate.assign.problem import Assigned, Instance, Prices
from tonnage.allocate.assign.replan import Replanned, replan
from tonnage.allocate.assign.separable import least_sum
from tonnage.allocate.speeds import Floats, Ints

__all__ = [
    "Assigned",
    "Floats",
    "Instance",
    "Ints",
    "Prices",
    "Replanned",
    "least_makespan",
    "least_sum",
    "least_total_completion",
    "replan",
]
