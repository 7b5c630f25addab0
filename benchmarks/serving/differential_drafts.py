"""Random valid requests, before they are written down for one of the transports."""

import random
from dataclasses import dataclass
from math import prod

import numpy as np
from differential_models import TWINS, Twin

_WORDS = ("", "word", "größer", "two words", "x" * 300, '"quoted"\n', "\u0001", "日本")


@dataclass(slots=True)
class Draft:
    twin: Twin
    version: str
    id: str
    inputs: dict[str, np.ndarray]  # BF16 are the upper halves of their bits
    outputs: list[str] | None  # None: nothing is said, and all come

    @property
    def rows(self) -> int:
        return next(iter(self.inputs.values())).shape[0]


def drafted(rng: random.Random, twins: tuple[Twin, ...] = TWINS, *, without: tuple[str, ...] = ()) -> Draft:
    """`without` are datatypes that a way of sending has no form for."""
    twin = rng.choice([each for each in twins if each.datatype not in without])
    shape = [rng.randint(1, 3) if size < 0 else size for size in twin.dims]
    if twin.most_rows:
        shape.insert(0, rng.randint(1, twin.most_rows))
    inputs = {name: values(rng, twin.datatype, shape) for name in twin.inputs}
    if rng.random() < 0.2:
        inputs = dict(reversed(inputs.items()))
    outputs = None
    if rng.random() < 0.5:
        outputs = rng.sample(twin.outputs, rng.randint(1, len(twin.outputs)))
    version = str(rng.choice(twin.served)) if rng.random() < 0.3 else ""
    return Draft(twin, version, rng.choice(("", "", "7", "request", "größer", "x" * 100)), inputs, outputs)


def values(rng: random.Random, datatype: str, shape: list[int]) -> np.ndarray:
    count = prod(shape)
    if datatype == "BYTES":
        return np.array([rng.choice(_WORDS).encode() for _ in range(count)], dtype=object).reshape(shape)
    if datatype == "BOOL":
        return np.array([rng.random() < 0.5 for _ in range(count)]).reshape(shape)
    if datatype == "BF16":
        return np.array([rng.randrange(0x7F80) for _ in range(count)], "<u2").reshape(shape)
    if datatype.startswith("FP"):
        kind = f"<f{int(datatype[2:]) // 8}"
        return np.array([rng.choice((rng.gauss(0, 1), rng.randint(-9, 9))) for _ in range(count)], kind).reshape(shape)
    bounds = np.iinfo(datatype.lower())
    chosen = [rng.choice((rng.randint(bounds.min, bounds.max), bounds.min, bounds.max)) for _ in range(count)]
    return np.array(chosen, datatype.lower()).reshape(shape)


def raw(array: np.ndarray) -> bytes:
    """As the protocol has it: strings with their lengths before them."""
    if array.dtype == object:
        return b"".join(len(each).to_bytes(4, "little") + each for each in array.ravel())
    return array.tobytes()


def plain(rng: random.Random, array: np.ndarray) -> list[object]:
    """For JSON, as one list or as lists in lists."""
    if array.dtype == object:
        array = np.array([each.decode() for each in array.ravel()], dtype=object).reshape(array.shape)
    return array.tolist() if rng.random() < 0.3 else array.ravel().tolist()
