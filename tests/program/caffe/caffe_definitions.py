"""Caffe's layers as their sources define them, in plain loops: what the module is compared with."""

import math
from typing import Any

import numpy as np

Array = np.ndarray
LOWEST = np.finfo(np.float32).min


def convolution(x: Array, w: Array, b: Array | None, stride: Any, pad: Any, dilation: Any, group: int) -> Array:
    n, channels, height, width = x.shape
    outputs, _, kh, kw = w.shape
    oh = (height + 2 * pad[0] - (dilation[0] * (kh - 1) + 1)) // stride[0] + 1
    ow = (width + 2 * pad[1] - (dilation[1] * (kw - 1) + 1)) // stride[1] + 1
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2))
    made = np.zeros((n, outputs, oh, ow))
    for o in range(outputs):
        first = (o // (outputs // group)) * (channels // group)
        for i in range(channels // group):
            for y in range(kh):
                for z in range(kw):
                    part = padded[:, first + i, y * dilation[0] :, z * dilation[1] :]
                    part = part[:, : (oh - 1) * stride[0] + 1 : stride[0], : (ow - 1) * stride[1] + 1 : stride[1]]
                    made[:, o] += w[o, i, y, z] * part
        made[:, o] += 0 if b is None else b[o]
    return made


def deconvolution(x: Array, w: Array, b: Array | None, stride: int, pad: int, dilation: int, group: int) -> Array:
    n, channels, height, width = x.shape
    _, each, kh, kw = w.shape
    oh, ow = (stride * (size - 1) + dilation * (k - 1) + 1 for size, k in ((height, kh), (width, kw)))
    made = np.zeros((n, each * group, oh, ow))
    for c in range(channels):
        first = (c // (channels // group)) * each
        for o in range(each):
            for y in range(height):
                for z in range(width):
                    rows = slice(y * stride, y * stride + dilation * (kh - 1) + 1, dilation)
                    columns = slice(z * stride, z * stride + dilation * (kw - 1) + 1, dilation)
                    made[:, first + o, rows, columns] += x[:, c, y, z][:, None, None] * w[c, o]
    made = made[:, :, pad : oh - pad, pad : ow - pad]
    return made if b is None else made + b[None, :, None, None]


def pooled_size(size: int, kernel: int, stride: int, pad: int, any_pad: bool, floor: bool = False) -> int:
    count = (math.floor if floor else math.ceil)((size + 2 * pad - kernel) / stride) + 1
    return count - 1 if any_pad and (count - 1) * stride >= size + pad else count


def pooling(x: Array, kernel: Any, stride: Any, pad: Any, mean: bool, floor: bool = False) -> tuple[Array, Array]:
    """The pooled image, and where maxima were."""
    n, channels, height, width = x.shape
    sizes = [
        pooled_size(s, k, t, p, any(pad), floor) for s, k, t, p in zip(x.shape[2:], kernel, stride, pad, strict=True)
    ]
    made, mask = np.zeros((n, channels, *sizes)), np.full((n, channels, *sizes), -1)
    for y in range(sizes[0]):
        for z in range(sizes[1]):
            top, left = y * stride[0] - pad[0], z * stride[1] - pad[1]
            bottom, right = min(top + kernel[0], height + pad[0]), min(left + kernel[1], width + pad[1])
            area = (bottom - top) * (right - left)
            top, left, bottom, right = max(top, 0), max(left, 0), min(bottom, height), min(right, width)
            window = x[:, :, top:bottom, left:right]
            if mean:
                made[:, :, y, z] = window.sum((2, 3), dtype=np.float64) / area if area else 0
            elif window.size == 0:
                made[:, :, y, z] = LOWEST
            else:
                flat = window.reshape(n, channels, -1)
                place = flat.argmax(2)
                made[:, :, y, z] = flat.max(2)
                mask[:, :, y, z] = (top + place // (right - left)) * width + left + place % (right - left)
    return made, mask


def lrn_across(x: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    made = np.zeros(x.shape)
    for c in range(x.shape[1]):
        first, last = max(0, c - size // 2), min(x.shape[1], c + size // 2 + 1)
        total = (x[:, first:last].astype(np.float64) ** 2).sum(1)
        made[:, c] = x[:, c] * (k + alpha / size * total) ** -beta
    return made


def lrn_within(x: Array, size: int, alpha: float, beta: float) -> Array:
    means, _ = pooling(x.astype(np.float64) ** 2, (size, size), (1, 1), (size // 2, size // 2), mean=True)
    return x * (1 + alpha * means) ** -beta


def bilinear(x: Array, height: int, width: int) -> Array:
    """Corners on corners."""
    made = np.zeros((*x.shape[:2], height, width))
    ry = (x.shape[2] - 1) / (height - 1) if height > 1 else 0
    rx = (x.shape[3] - 1) / (width - 1) if width > 1 else 0
    for y in range(height):
        for z in range(width):
            y1, x1 = int(ry * y), int(rx * z)
            y2, x2 = min(y1 + 1, x.shape[2] - 1), min(x1 + 1, x.shape[3] - 1)
            fy, fx = ry * y - y1, rx * z - x1
            above = x[:, :, y1, x1] * (1 - fx) + x[:, :, y1, x2] * fx
            below = x[:, :, y2, x1] * (1 - fx) + x[:, :, y2, x2] * fx
            made[:, :, y, z] = above * (1 - fy) + below * fy
    return made
