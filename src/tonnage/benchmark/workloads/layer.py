"""The layers of a sample network as plain values: what each holds, multiplies and puts out for one sample."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer. `outputs` are its filters or nodes, `inputs` the depth or width of what comes in.

    `kind` is convolution, dense, attention, recurrent, embedding or norm.
    """

    kind: str
    name: str
    inputs: int
    outputs: int
    parameters: int
    multiply_adds: int  # of one sample, forward
    output_elements: int  # of one sample
    kernel: int = 1  # side of a convolution's window


def convolution(name: str, inputs: int, outputs: int, kernel: int, height: int, width: int) -> Layer:
    """A convolution with bias that puts out `height` x `width` positions."""
    return Layer(
        kind="convolution",
        name=name,
        inputs=inputs,
        outputs=outputs,
        kernel=kernel,
        parameters=outputs * inputs * kernel * kernel + outputs,
        multiply_adds=outputs * inputs * kernel * kernel * height * width,
        output_elements=outputs * height * width,
    )


def transposed_convolution(name: str, inputs: int, outputs: int, kernel: int, height: int, width: int) -> Layer:
    """A transposed convolution with bias whose stride is its kernel; it *takes in* `height` x `width` positions."""
    return Layer(
        kind="convolution",
        name=name,
        inputs=inputs,
        outputs=outputs,
        kernel=kernel,
        parameters=outputs * inputs * kernel * kernel + outputs,
        multiply_adds=outputs * inputs * kernel * kernel * height * width,
        output_elements=outputs * height * kernel * width * kernel,
    )


def dense(name: str, inputs: int, outputs: int, rows: int = 1) -> Layer:
    """A linear layer with bias; `rows` is how often one sample goes through it, such as once for each token."""
    return Layer(
        kind="dense",
        name=name,
        inputs=inputs,
        outputs=outputs,
        parameters=inputs * outputs + outputs,
        multiply_adds=rows * inputs * outputs,
        output_elements=rows * outputs,
    )


def norm(name: str, depth: int, positions: int) -> Layer:
    """A normalisation with a scale and a shift for each of `depth` channels."""
    elements = depth * positions
    return Layer(
        kind="norm",
        name=name,
        inputs=depth,
        outputs=depth,
        parameters=2 * depth,
        multiply_adds=elements,
        output_elements=elements,
    )


def embedding(name: str, entries: int, width: int, positions: int) -> Layer:
    """A table of `entries` vectors; looking up multiplies nothing."""
    return Layer(
        kind="embedding",
        name=name,
        inputs=entries,
        outputs=width,
        parameters=entries * width,
        multiply_adds=0,
        output_elements=positions * width,
    )


def attention(name: str, width: int, sequence: int) -> Layer:
    """Scaled dot-product attention without its projections. Positions that a causal mask hides are counted too."""
    return Layer(
        kind="attention",
        name=name,
        inputs=width,
        outputs=width,
        parameters=0,
        multiply_adds=2 * sequence * sequence * width,
        output_elements=sequence * width,
    )


def recurrent(name: str, inputs: int, hidden: int, gates: int, sequence: int) -> Layer:
    """A recurrent layer with two biases, as cuDNN and torch have it."""
    weights = gates * hidden * (inputs + hidden)
    return Layer(
        kind="recurrent",
        name=name,
        inputs=inputs,
        outputs=hidden,
        parameters=weights + 2 * gates * hidden,
        multiply_adds=sequence * weights,
        output_elements=sequence * hidden,
    )
