"""From an operator of a Trace to its works."""

from __future__ import annotations

from tonnage.estimate.kernels import convolutions, products, streams
from tonnage.estimate.kernels.work import COUNTERS, Rules, Work
from tonnage.program.trace import Operator

__all__ = ["convolutions", "products", "streams", "works_of"]  # importing them fills the table of counters
_LISTS = ("aten::_foreach_", "aten::_fused_", "aten::_amp_foreach_")


def works_of(operator: Operator, rules: Rules) -> tuple[Work, ...]:
    """The kernels of any operator; one that nobody described moves its bytes."""
    if operator.name in streams.NOTHING:
        return ()
    counter = COUNTERS.get(operator.name)
    if counter is not None:
        return counter(operator, rules)
    if operator.name.startswith(_LISTS) and "rms_norm" not in operator.name:
        return streams.lists(operator, rules)
    return (streams.moved("pointwise", operator),)
