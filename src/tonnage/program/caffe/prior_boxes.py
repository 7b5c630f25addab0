"""The boxes that a PriorBox layer makes: they depend on sizes only."""

from __future__ import annotations

import numpy as np

from tonnage.program.caffe.layer import Shape
from tonnage.program.caffe.shapes.detection import Priors
from tonnage.program.caffe.weights import Array


def prior_boxes(priors: Priors, features: Shape, image: Shape) -> Array:
    """1 x 2 x (4 for each box): corners in units of the image, then variances."""
    height, width = priors.image if priors.image != (0, 0) else image
    step = priors.step if priors.step != (0, 0) else (height / features[0], width / features[1])
    y = (np.arange(features[0]) + priors.offset) * step[0]
    x = (np.arange(features[1]) + priors.offset) * step[1]
    sizes = np.array(priors.sizes)
    boxes = np.empty((*features, len(sizes), 4))
    boxes[..., 0] = (x[None, :, None] - sizes[:, 0] / 2) / width
    boxes[..., 1] = (y[:, None, None] - sizes[:, 1] / 2) / height
    boxes[..., 2] = (x[None, :, None] + sizes[:, 0] / 2) / width
    boxes[..., 3] = (y[:, None, None] + sizes[:, 1] / 2) / height
    boxes = boxes.clip(0, 1) if priors.clip else boxes
    variances = np.broadcast_to(np.array(priors.variances), boxes.shape)
    return np.stack([boxes.reshape(-1), variances.reshape(-1)])[None].astype(np.float32)
