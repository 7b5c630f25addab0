"""Many tasks on unequal GPUs: who runs where and when, with a bound, a reason for each placement, and a simulator."""

from tonnage.verbs import make_callable

make_callable(__name__)
