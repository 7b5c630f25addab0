"""Small traces made by hand, without torch."""

from tonnage.program.trace import Category, Operator, Origin, Phase, TensorSpec, Trace
from tonnage.program.virtual_gpu.recorder import Recorder
from tonnage.units import MIB

RELU = Operator("aten::relu", (TensorSpec((4, 8), "float32"),), (TensorSpec((4, 8), "float32"),))
PRODUCT = Operator(
    "aten::mm",
    (TensorSpec((256, 256), "float32"), TensorSpec((256, 256), "float32")),
    (TensorSpec((256, 256), "float32"),),
)


def recorder_with(*operators: Operator) -> Recorder:
    recorder = Recorder()
    recorder.operators.extend(operators)
    return recorder


def training_trace(
    *,
    steps: int = 3,
    weights: int = 8 * MIB,
    activations: int = 32 * MIB,
    operator: Operator = RELU,
    batch: int | None = None,
) -> Trace:
    """Weights, then in each step activations, gradients and, from the first on, the optimizer's state."""
    recorder = recorder_with(operator)
    module = recorder.module("Net.layer")
    recorder.tag(recorder.allocate(weights, 0, Phase.SETUP), Category.PARAMETERS)
    recorder.call(0, 0, Phase.SETUP)  # an operator's results are allocated before its call is noted
    for step in range(steps):
        activation = recorder.allocate(activations, module, Phase.FORWARD)
        recorder.call(0, module, Phase.FORWARD)
        gradient = recorder.allocate(weights, module, Phase.BACKWARD)
        recorder.tag(gradient, Category.GRADIENTS)
        recorder.call(0, module, Phase.BACKWARD)
        recorder.free(activation)
        if step == 0:
            recorder.tag(recorder.allocate(2 * weights, 0, Phase.OPTIMIZER), Category.OPTIMIZER_STATE)
        recorder.call(0, 0, Phase.OPTIMIZER)
        recorder.end_step()
        recorder.free(gradient)
    return recorder.trace(Origin(program="train.py", steps=steps, batch=batch))
