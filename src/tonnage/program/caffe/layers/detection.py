"""PriorBox and DetectionOutput on torch, as SSD's Caffe defines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tonnage.program.caffe.layer import Layer, Shape
from tonnage.program.caffe.prior_boxes import prior_boxes
from tonnage.program.caffe.shapes.detection import Detection, detection_of, most_boxes, priors_of

Array: TypeAlias = npt.NDArray[np.float32]
_MOST_PAIRED = 1000  # boxes that are compared all at once


class PriorBox(nn.Module):
    """Boxes around every place of a feature map; they depend on sizes only and are made once for those of the file."""

    def __init__(self, layer: Layer, shapes: list[Shape]) -> None:
        super().__init__()
        self._priors, self._sizes = priors_of(layer), (shapes[0][2:], shapes[1][2:])
        self.boxes = nn.Parameter(torch.from_numpy(prior_boxes(self._priors, *self._sizes)), requires_grad=False)

    def forward(self, features: Tensor, image: Tensor) -> Tensor:
        sizes = tuple(features.shape[2:]), tuple(image.shape[2:])
        if sizes == self._sizes:
            return self.boxes
        return torch.from_numpy(prior_boxes(self._priors, *sizes)).to(features.device)


class DetectionOutput(nn.Module):
    """Boxes with image, label and confidence, one a row, after suppression of those that overlap better ones."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self._settings = detection_of(layer)

    def forward(self, places: Tensor, scores: Tensor, priors: Tensor) -> Tensor:
        found, count = self._settings, priors.shape[2] // 4
        boxes = decoded(places.reshape(places.shape[0], count, -1, 4), priors.reshape(2, count, 1, 4), found)
        confidences = scores.reshape(scores.shape[0], count, found.classes)
        if boxes.is_meta:  # nothing is known of values: as many rows as there can be
            return boxes.new_empty(1, 1, boxes.shape[0] * max(1, most_boxes(found, count)), 7)
        rows = [
            _of_image(number, *each, found)
            for number, each in enumerate(zip(boxes.cpu().numpy(), confidences.cpu().numpy(), strict=True))
        ]
        made = np.concatenate(rows)
        if not len(made):
            made = np.full((len(rows), 7), -1, np.float32)
            made[:, 0] = np.arange(len(rows))
        return torch.from_numpy(made[None, None]).to(places.device)


def decoded(places: Tensor, priors: Tensor, found: Detection) -> Tensor:
    """Corners of boxes; `places` are images x boxes x classes x 4, `priors` corners and variances."""
    corners, variances = priors[0], priors[1]
    moves = places if found.variance_in_target else places * variances
    if found.code == "CORNER":
        return corners + moves
    size = corners[..., 2:] - corners[..., :2]
    if found.code == "CORNER_SIZE":
        return corners + moves * torch.cat([size, size], -1)
    centre = (corners[..., :2] + corners[..., 2:]) / 2 + moves[..., :2] * size
    half = torch.exp(moves[..., 2:]) * size / 2
    return torch.cat([centre - half, centre + half], -1)


def _of_image(number: int, boxes: Array, scores: Array, found: Detection) -> Array:
    """Rows of one image, by label."""
    chosen: list[tuple[int, npt.NDArray[np.int64]]] = []
    for label in range(found.classes):
        if label != found.background:
            kept = _suppressed(boxes[:, 0 if found.shared else label], scores[:, label], found)
            chosen.append((label, kept))
    labels = np.concatenate([np.full(len(kept), label) for label, kept in chosen] or [np.empty(0, np.int64)])
    places = np.concatenate([kept for _, kept in chosen] or [np.empty(0, np.int64)])
    if 0 <= found.keep_top_k < len(places):
        best = np.argsort(-scores[places, labels], kind="stable")[: found.keep_top_k]
        best = best[np.argsort(labels[best], kind="stable")]
        labels, places = labels[best], places[best]
    rows = np.empty((len(places), 7), np.float32)
    rows[:, 0], rows[:, 1], rows[:, 2] = number, labels, scores[places, labels]
    rows[:, 3:] = boxes[places, 0] if found.shared else boxes[places, labels]
    return rows


def _suppressed(boxes: Array, scores: Array, found: Detection) -> npt.NDArray[np.int64]:
    """Boxes of one class from the best on, without those that overlap a better one too much."""
    candidates = np.flatnonzero(scores > found.threshold)
    candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
    candidates = candidates[: found.top_k] if found.top_k > -1 else candidates
    chosen, threshold, kept = boxes[candidates], found.nms_threshold, []
    all_pairs = _overlaps(chosen, chosen) if len(chosen) <= _MOST_PAIRED else None
    most = np.full(len(chosen), -1.0)  # that each overlaps one that is kept
    for number in range(len(chosen)):
        if most[number] <= threshold:
            kept.append(number)
            pairs = _overlaps(chosen[number : number + 1], chosen)[0] if all_pairs is None else all_pairs[number]
            np.maximum(most, pairs, out=most)
            threshold *= found.eta if found.eta < 1 and threshold > 0.5 else 1
    return candidates[kept]


def _overlaps(some: Array, boxes: Array) -> Any:
    """Intersection over union, of each with each."""
    left, top, right, bottom = boxes.T
    own_left, own_top, own_right, own_bottom = some.T[:, :, None]
    width = np.maximum(np.minimum(own_right, right) - np.maximum(own_left, left), 0)
    height = np.maximum(np.minimum(own_bottom, bottom) - np.maximum(own_top, top), 0)
    common = width * height
    union = _areas(some)[:, None] + _areas(boxes) - common
    return np.divide(common, union, out=np.zeros_like(common), where=common > 0)


def _areas(boxes: Array) -> Any:
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    return sides[:, 0] * sides[:, 1]


def prior_box(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    return PriorBox(layer, shapes)


def detection_output(layer: Layer, weights: Sequence[Tensor], shapes: list[Shape]) -> nn.Module:
    return DetectionOutput(layer)
