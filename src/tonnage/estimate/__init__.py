"""Trace x Gpu -> Estimate."""

from tonnage.verbs import make_callable

make_callable(__name__)
