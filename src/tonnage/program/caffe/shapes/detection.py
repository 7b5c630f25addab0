"""The layers of SSD: boxes to begin with, and what is detected. As in SSD's Caffe."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tonnage.program.caffe.layer import Layer, Shape, Shaped, needed, shown, size_of

_EQUAL = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Priors:
    """The boxes at each place of a feature map."""

    sizes: tuple[tuple[float, float], ...]  # width and height, in pixels
    variances: tuple[float, ...]
    clip: bool
    offset: float
    image: tuple[int, int]  # height and width; 0 is: of the second bottom
    step: tuple[float, float]  # height and width; 0 is: image over feature map


def priors_of(layer: Layer) -> Priors:
    """SSD takes `min_size` and `max_size` as whole numbers, whatever the file says; so do we."""
    param = layer.param("prior_box_param")
    least, most = param.all("min_size"), param.all("max_size")
    if not least or not all(1 <= size < 2**31 for size in (*least, *most)):
        layer.refuse("does not say a min_size of 1 or more", param, "min_size")
    if most and len(most) != len(least):
        layer.refuse(f"has {len(most)} max_size for {len(least)} min_size", param, "max_size")
    if any(large <= small for small, large in zip(least, most, strict=False)):
        layer.refuse("has a max_size that is not greater than its min_size", param, "max_size")
    sizes: list[tuple[float, float]] = []
    for number, written in enumerate(least):
        small = float(int(written))
        sizes.append((small, small))
        if most:
            middle = (small * int(most[number])) ** 0.5
            sizes.append((middle, middle))
        sizes += [(small * ratio**0.5, small / ratio**0.5) for ratio in _ratios(layer)]
    variances = param.all("variance") or [0.1]
    if len(variances) not in (1, 4) or not all(value > 0 for value in variances):
        layer.refuse("needs 1 or 4 variances above 0", param, "variance")
    return Priors(
        sizes=tuple(sizes),
        variances=tuple(variances if len(variances) == 4 else variances * 4),
        clip=param.get("clip"),
        offset=param.get("offset"),
        image=tuple(int(value) for value in _pair(layer, "img", "img_size")),  # type: ignore[arg-type]
        step=_pair(layer, "step", "step"),
    )


def _ratios(layer: Layer) -> list[float]:
    """Beside 1: each that is not there yet, and its inverse if boxes are flipped."""
    param = layer.param("prior_box_param")
    found = [1.0]
    for ratio in param.all("aspect_ratio"):
        if not 0 < ratio < 1e6:
            layer.refuse(f"has an aspect_ratio of {ratio}", param, "aspect_ratio")
        if all(abs(ratio - other) >= _EQUAL for other in found):
            found += [ratio, 1 / ratio] if param.get("flip") else [ratio]
    return [ratio for ratio in found if abs(ratio - 1) >= _EQUAL]


def _pair(layer: Layer, short: str, name: str) -> tuple[float, float]:
    param = layer.param("prior_box_param")
    height, width, both = param.get(f"{short}_h"), param.get(f"{short}_w"), param.get(name)
    if height is None and width is None:
        found = (both, both) if both is not None else (0, 0)
    elif both is not None or height is None or width is None:
        layer.refuse(f"gives {short}_h or {short}_w alone, or beside {name}", param, f"{short}_h")
    else:
        found = (height, width)
    if found != (0, 0) and not (found[0] > 0 and found[1] > 0):
        layer.refuse(f"has a {name} that is not above 0", param, name)
    return found


def prior_box(layer: Layer, bottoms: list[Shape]) -> Shaped:
    if any(len(shape) != 4 for shape in bottoms):
        layer.refuse("needs a feature map and an image of 4 axes each")
    boxes = len(priors_of(layer).sizes) * bottoms[0][2] * bottoms[0][3]
    return Shaped((size_of(layer, (1, 2, boxes * 4)),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """How boxes are chosen. `top_k` and `keep_top_k` of -1 keep all."""

    classes: int
    shared: bool
    background: int
    code: str
    variance_in_target: bool
    threshold: float
    nms_threshold: float
    eta: float
    top_k: int
    keep_top_k: int


def detection_of(layer: Layer) -> Detection:
    param = layer.param("detection_output_param")
    nms = param.part("nms_param")
    threshold, top_k = param.get("confidence_threshold"), nms.get("top_k")
    if not nms.get("nms_threshold") >= 0 or not 0 < nms.get("eta") <= 1:
        layer.refuse("has an nms_threshold below 0, or an eta that is not between 0 and 1", nms, "eta")
    return Detection(
        classes=needed(layer, param, "num_classes"),
        shared=param.get("share_location"),
        background=param.get("background_label_id"),
        code=param.get("code_type"),
        variance_in_target=param.get("variance_encoded_in_target"),
        threshold=threshold if threshold is not None else float("-inf"),
        nms_threshold=nms.get("nms_threshold"),
        eta=nms.get("eta"),
        top_k=top_k if top_k is not None else -1,
        keep_top_k=param.get("keep_top_k"),
    )


def most_boxes(found: Detection, priors: int) -> int:
    """How many boxes one image can have at most."""
    each = priors if found.top_k < 0 else min(found.top_k, priors)
    chosen = each * (found.classes - (0 <= found.background < found.classes))
    return chosen if found.keep_top_k < 0 else min(chosen, found.keep_top_k)


def detection_output(layer: Layer, bottoms: list[Shape]) -> Shaped:
    """How many boxes there will be is not known before: as many rows as there can be at most."""
    found = detection_of(layer)
    places, scores, priors = bottoms
    if len(priors) != 3 or priors[:2] != (1, 2) or priors[2] % 4:
        layer.refuse(f"needs prior boxes of 1x2x(4 for each), not {shown(priors)}")
    count = priors[2] // 4
    if prod(places[1:]) != count * 4 * (1 if found.shared else found.classes):
        layer.refuse(f"has locations of {shown(places)} for {count} prior boxes")
    if prod(scores[1:]) != count * found.classes or scores[0] != places[0]:
        layer.refuse(f"has confidences of {shown(scores)} for {count} prior boxes and {found.classes} classes")
    return Shaped((size_of(layer, (1, 1, max(1, places[0] * max(1, most_boxes(found, count))), 7)),))
