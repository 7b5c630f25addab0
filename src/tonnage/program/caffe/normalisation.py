"""Normalisations by stored means and variances as one factor and one summand for each channel; for numpy and torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tonnage.program.caffe.layer import Layer

Values = TypeVar("Values")  # arrays of numpy, or tensors


def uses_stored(layer: Layer) -> bool:
    """Does a normalisation use what is stored, as it does unless told otherwise?"""
    return layer.type == "BN" or layer.param("batch_norm_param").get("use_global_stats") is not False


def batch_norm_factors(layer: Layer, weights: Sequence[Values]) -> tuple[Values, Values]:
    """Of a BN layer the weights are slope, bias, mean and variance, or slope and bias alone; of a BatchNorm layer sums of
    means and variances, and their number."""
    flat: list[Values] = [each.reshape(-1) for each in weights]  # type: ignore[attr-defined]
    if len(flat) == 2:
        return flat[0], flat[1]
    if layer.type == "BN":
        slope, bias, mean, variance = flat
        epsilon = layer.param("bn_param").get("eps")
        factor = slope * (variance + epsilon) ** -0.5
        return factor, bias - mean * factor
    mean, variance, count = flat
    share = 0.0 if float(count[0]) == 0 else 1 / float(count[0])  # type: ignore[index]
    factor = (variance * share + layer.param("batch_norm_param").get("eps")) ** -0.5  # type: ignore[operator]
    return factor, -(mean * share) * factor  # type: ignore[operator]
