"""The layers of SSD against their definition in plain loops."""

import math
from pathlib import Path

import numpy as np
import pytest
from caffe_files import input_text, layer_text, made_model, one_layer

pytest.importorskip("torch")

PRIORS = """prior_box_param { min_size: 20.7 min_size: 40 max_size: 40 max_size: 70 aspect_ratio: 2 aspect_ratio: 2
    aspect_ratio: 3 clip: CLIP variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 offset: 0.5 STEP }"""


def priors(height: int, width: int, image: tuple[int, int], step: float | None, clip: bool) -> np.ndarray:
    ratios = [1, 2, 1 / 2, 3, 1 / 3]
    boxes = []
    for y in range(height):
        for x in range(width):
            cy, cx = ((i + 0.5) * (step or image[n] / size) for n, (i, size) in enumerate(((y, height), (x, width))))
            for least, most in ((20, 40), (40, 70)):
                sizes = [(least, least), (math.sqrt(least * most),) * 2]
                sizes += [(least * math.sqrt(r), least / math.sqrt(r)) for r in ratios if r != 1]
                boxes += [
                    ((cx - w / 2) / image[1], (cy - h / 2) / image[0], (cx + w / 2) / image[1], (cy + h / 2) / image[0])
                    for w, h in sizes
                ]
    made = np.array(boxes).clip(0, 1) if clip else np.array(boxes)
    return np.stack([made.reshape(-1), np.tile([0.1, 0.1, 0.2, 0.2], len(boxes))])[None]


@pytest.mark.parametrize(("step", "clip"), [(None, True), (16.0, False)])
def test_prior_boxes(tmp_path: Path, step: float | None, clip: bool) -> None:
    settings = PRIORS.replace("CLIP", str(clip).lower()).replace("STEP", f"step: {step}" if step else "")
    model = one_layer(tmp_path, "PriorBox", settings, ((1, 8, 3, 4), (1, 3, 60, 100)))

    found = model.run({"a": np.zeros((1, 8, 3, 4)), "b": np.zeros((1, 3, 60, 100))})["out"]
    np.testing.assert_allclose(found, priors(3, 4, (60, 100), step, clip), atol=1e-6)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [max(0, x[2] - x[0]) * max(0, x[3] - x[1]) if x[2] >= x[0] and x[3] >= x[1] else 0 for x in (a, b)]
    return width * height / (sum(areas) - width * height)


def detections(places: np.ndarray, scores: np.ndarray, prior: np.ndarray, *, classes: int, code: str, top_k: int, keep: int,
               threshold: float, eta: float, shared: bool) -> list[list[float]]:  # fmt: skip
    """As SSD's Caffe finds them, one after the other."""
    rows: list[list[float]] = []
    count = prior.shape[2] // 4
    corners, variances = prior[0].reshape(2, count, 4)
    for image in range(len(places)):
        moves = places[image].reshape(count, 1 if shared else classes, 4)
        confidence = scores[image].reshape(count, classes)
        found = []
        for label in range(1, classes):
            boxes = [decoded(moves[p, 0 if shared else label], corners[p], variances[p], code) for p in range(count)]
            order = [p for p in np.argsort(-confidence[:, label], kind="stable") if confidence[p, label] > threshold]
            kept: list[int] = []
            limit = 0.6
            for place in order[:top_k]:
                if all(overlap(boxes[place], boxes[other]) <= limit for other in kept):
                    kept.append(place)
                    limit *= eta if limit > 0.5 else 1
            found += [(confidence[p, label], label, boxes[p]) for p in kept]
        best = sorted(found, key=lambda each: -each[0])[:keep]
        rows += [[image, label, score, *box] for score, label, box in sorted(best, key=lambda each: each[1])]
    return rows


def decoded(move: np.ndarray, prior: np.ndarray, variance: np.ndarray, code: str) -> np.ndarray:
    if code == "CORNER":
        return prior + variance * move
    width, height = prior[2] - prior[0], prior[3] - prior[1]
    if code == "CORNER_SIZE":
        return prior + variance * move * np.array([width, height, width, height])
    cx, cy = (
        (prior[0] + prior[2]) / 2 + variance[0] * move[0] * width,
        (prior[1] + prior[3]) / 2 + variance[1] * move[1] * height,
    )
    w, h = math.exp(variance[2] * move[2]) * width, math.exp(variance[3] * move[3]) * height
    return np.array([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])


@pytest.mark.parametrize("code", ["CENTER_SIZE", "CORNER", "CORNER_SIZE"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("eta", [1.0, 0.9])
def test_detections(tmp_path: Path, code: str, shared: bool, eta: float) -> None:
    random, classes, count = np.random.default_rng(7), 4, 40
    corners = random.uniform(0, 0.6, (count, 2))
    prior = np.concatenate([corners, corners + random.uniform(0.1, 0.4, (count, 2))], 1)
    prior = np.stack([prior.reshape(-1), np.tile([0.1, 0.1, 0.2, 0.2], count)])[None].astype(np.float32)
    places = random.normal(0, 0.7, (2, count * 4 * (1 if shared else classes))).astype(np.float32)
    scores = random.uniform(0, 1, (2, count * classes)).astype(np.float32)
    settings = f"""detection_output_param {{ num_classes: {classes} share_location: {str(shared).lower()}
        nms_param {{ nms_threshold: 0.6 top_k: 15 eta: {eta} }}
        code_type: {code} keep_top_k: 12 confidence_threshold: 0.3 }}"""
    model = one_layer(tmp_path, "DetectionOutput", settings, (places.shape, scores.shape, prior.shape))

    found = model.run({"a": places, "b": scores, "c": prior})["out"]
    wanted = detections(
        places, scores, prior, classes=classes, code=code, top_k=15, keep=12, threshold=0.3, eta=eta, shared=shared
    )
    assert found.shape == (1, 1, len(wanted), 7)
    np.testing.assert_allclose(found[0, 0], np.array(wanted), atol=1e-5)


def test_no_detection_is_a_row_for_each_image(tmp_path: Path) -> None:
    settings = "detection_output_param { num_classes: 2 confidence_threshold: 0.5 }"
    model = one_layer(tmp_path, "DetectionOutput", settings, ((2, 4), (2, 2), (1, 2, 4)))

    found = model.run({"a": np.zeros((2, 4)), "b": np.zeros((2, 2)), "c": np.zeros((1, 2, 4))})["out"]
    assert found[0, 0].tolist() == [[0, *[-1] * 6], [1, *[-1] * 6]]


def test_a_small_detector_from_image_to_boxes(tmp_path: Path) -> None:
    """The head of an SSD: permuted, flattened, joined, reshaped, softmax."""

    def conv(outputs: int, name: str) -> str:
        return layer_text(
            "Convolution", f"convolution_param {{ num_output: {outputs} kernel_size: 3 pad: 1 }}", "data", name
        )

    text = input_text(1, 3, 6, 6)
    for name, outputs in (("loc", 16), ("conf", 12)):
        text += conv(outputs, name) + layer_text("Permute", "permute_param { order: [0, 2, 3, 1] }", name, f"{name}_p")
        text += layer_text("Flatten", "flatten_param { axis: 1 }", f"{name}_p", f"{name}_f")
    text += layer_text("PriorBox", "prior_box_param { min_size: 2 max_size: 4 aspect_ratio: 2 }", "loc data", "prior")
    text += layer_text("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 3 } }", "conf_f", "conf_r")
    text += layer_text("Softmax", "softmax_param { axis: 2 }", "conf_r", "conf_s") + layer_text(
        "Flatten", "", "conf_s", "conf_t"
    )
    settings = "num_classes: 3 nms_param { nms_threshold: 0.45 top_k: 100 } code_type: CENTER_SIZE keep_top_k: 10"
    text += layer_text("DetectionOutput", f"detection_output_param {{ {settings} }}", "loc_f conf_t prior", "out")
    model = made_model(tmp_path, text)

    found = model.run({"data": np.random.default_rng(2).normal(size=(1, 3, 6, 6))})["out"]
    assert found.shape == (1, 1, 10, 7) == model.outputs["out"]
    assert set(found[0, 0, :, 1].tolist()) <= {1.0, 2.0}
