"""One network over several devices: solvers, bounds, an independent checker, fronts, pages. Pure: no clock, no network."""

from tonnage.verbs import make_callable

make_callable(__name__)
