"""Rows that obey a known law, for tests of the cluster regression."""

from collections.abc import Callable

import numpy as np

from tonnage.estimate.cluster_features import COUNTS, VARIABLES, Features, variables_on
from tonnage.estimate.cluster_regression import ClusterModel, labels_of
from tonnage.estimate.cluster_rows import TARGETS, Rows
from tonnage.hardware import find_gpu

H200 = find_gpu("H200")
Law = Callable[[dict[str, float]], tuple[float, float]]


def features(**counts: float) -> Features:
    """A dense network in training; counts that are not given are zero."""
    return Features(
        kind="dense", mode="training", precision="float32", batch=8, counts=dict.fromkeys(COUNTS, 0.0) | counts
    )


def host_and_device(variables: dict[str, float]) -> tuple[float, float]:
    """20 us a call and 300 us beside them; half of the peak, and a third of the bandwidth."""
    device = 2 * variables["dense_seconds"] + 3 * variables["layer_seconds"] + 1e-5
    return 2e-5 * variables["operator_calls"] + 3e-4, device


def random_features(generator: np.random.Generator) -> Features:
    """Small and large networks, calls and work independent of each other."""
    work = 10 ** generator.uniform(6, 12)
    return features(
        dense_multiply_adds=work,
        layer_bytes=10 ** generator.uniform(5, 9.5),
        operator_calls=float(generator.integers(10, 400)),
        parameters=10 ** generator.uniform(4, 7),
        h2d_bytes=1e5,
    )


def rows(count: int, law: Law = host_and_device, noise: float = 0.0, seed: int = 0) -> Rows:
    """Measured rows on an H200 whose step takes what the law says; memory is what the features hold."""
    generator = np.random.default_rng(seed)
    drawn = [random_features(generator) for _ in range(count)]
    variables = [variables_on(one, H200) for one in drawn]
    laws = np.array([law(one) for one in variables])
    steps = laws.max(axis=1) * np.exp(noise * generator.standard_normal(count))
    size = np.array([1e9 + 3 * one["parameter_bytes"] + 2 * one["layer_bytes"] for one in variables])
    labels = [labels_of(one, "H200", "mlp") for one in drawn]
    measured = dict.fromkeys(TARGETS, steps * 0.3) | {"step_seconds": steps, "power_watts": np.full(count, 200.0)}
    measured |= dict.fromkeys(("allocated_bytes", "reserved_bytes", "device_bytes"), size)
    return Rows(
        labels={name: tuple(label[name] for label in labels) for name in labels[0]},
        variables=np.array([[one[name] for name in VARIABLES] for one in variables]),
        targets=measured,
        is_host_bound=laws[:, 0] >= laws[:, 1],
    )


def model(count: int = 120, noise: float = 0.0) -> ClusterModel:
    return ClusterModel(rows=rows(count, noise=noise), quantiles=dict.fromkeys(TARGETS, 1.5))
