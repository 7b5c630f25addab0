"""Single layers with random shapes: the part of the benchmark that tells the kernel model about every kind of operator.

A `Layer` names a kind, its numbers and its dtype. `sample_layers` draws them as networks use them, without torch; the
package `scenes` makes the forward and backward call of one.
"""

from tonnage.benchmark.layers.kinds import KINDS
from tonnage.benchmark.layers.layer import MOST_ELEMENTS, Layer, sample_layers

__all__ = ["KINDS", "MOST_ELEMENTS", "Layer", "sample_layers"]
