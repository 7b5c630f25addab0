"""Writes docs/reference/workloads.md: `python -m tonnage.benchmark.workloads.reference > docs/reference/workloads.md`."""

from collections.abc import Iterable, Iterator

from tonnage.benchmark.workloads.convolutional import DATASETS
from tonnage.benchmark.workloads.family import MAX_PARAMETERS, Family
from tonnage.benchmark.workloads.number import Number
from tonnage.benchmark.workloads.point import CONDITIONS
from tonnage.benchmark.workloads.registry import FAMILIES

_INTRODUCTION = f"""# Sample workloads

<!-- Made by `python -m tonnage.benchmark.workloads.reference > docs/reference/workloads.md`;
     a test fails when the two differ. -->

The benchmark measures networks of a few *families*. A handful of *numbers* describes a network of a family, and each can be
moved alone: what is measured then shows what this number does. A *point* is a network together with the conditions
under which it runs. Which points are measured is chosen by a [campaign](campaign.md).

**Linear** tells when the count of trainable parameters is a linear function of the number, all others being fixed. Tests
check it by formula and on the torch modules.

Numbers that make no difference, such as `conv4` of a network with three convolutions, are left out of a point, and names
of data sets are replaced by their shapes: equal networks are equal points and have equal keys. A network of more than
{MAX_PARAMETERS:,} parameters is refused.

## Conditions

Every family has these. Measured steps copy a batch to the device, run forward with loss, backward, the optimizer with
`zero_grad()`, and read the loss; inference runs forward without gradients and reads the outputs.
"""

_CONVOLUTIONAL = """\
The *minimal base model* has `convolutions: 0` and `dense: 0`: the image is flattened into one output layer. The rest is
chosen so that each change adds parameters linearly. Convolutions are padded and keep the size of the image; what
they put out is averaged to a `grid` before it is flattened, so that the first dense layer depends neither on the size
of the image nor on the number of convolutions. One more layer of K filters adds 9 K² + K parameters, one more dense
layer of N nodes N² + N. The first layer alone is different, since it sees the channels of the image; with a `stem` of K
filters before it, it is like all others.

{datasets}. The photographs of Dogs-vs-Cats have many sizes; the shape is a common one to scale them to.
"""
_UNET = """\
With `growth: 2` filters double from level to level, as in the classic network. With `growth: 1` all levels have the
same, and one more level adds as many parameters as the one before.
"""
_NOTES = {"convolutional": _CONVOLUTIONAL, "unet": _UNET}

_PYTHON = """## In Python

```python
from tonnage.benchmark.workloads import as_program, find_family, make_point, prepare_step

family = find_family("convolutional")
family.parameter_count({"convolutions": 2, "conv1": 64})  # by formula, without torch
[(layer.kind, layer.outputs, layer.multiply_adds) for layer in family.layers({"convolutions": 2})]
workload = family.build({"convolutions": 2})  # a torch module, its data and its loss

point = make_point("convolutional", {"convolutions": 2, "batch": 64, "precision": "bfloat16"})
print(point.key)
step = prepare_step(point, "cpu")
step()  # or copy, forward, backward, optimize, read one by one
print(as_program(point))  # the same as a script, for `tonnage estimate`
```
"""


def page() -> str:
    """The whole page, as Markdown."""
    parts = [_INTRODUCTION, *_table(CONDITIONS)]
    for family in FAMILIES.values():
        parts += _section(family)
    return "\n".join([*parts, _PYTHON])


def _section(family: Family) -> Iterator[str]:
    yield f"## `{family.name}`\n"
    yield f"{family.help}\n"
    if family.name in _NOTES:
        yield _NOTES[family.name].replace("{datasets}", _datasets())
    yield from _table(family.numbers)


def _table(numbers: Iterable[Number]) -> Iterator[str]:
    yield "| number | values | default | linear | meaning |\n|---|---|---|---|---|"
    yield (
        "\n".join(
            f"| `{number.name}` | {number.allowed} | {number.default} | {number.linear} | {number.help} |"
            for number in numbers
        )
        + "\n"
    )


def _datasets() -> str:
    return "; ".join(f"`{name}` stands for {shape}" for name, shape in DATASETS.items())


if __name__ == "__main__":
    print(page(), end="")
