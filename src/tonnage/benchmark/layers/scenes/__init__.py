"""What each kind of layer does: makes a scene that runs its forward and backward pass. Needs torch."""

from tonnage.benchmark.layers.layer import Layer
from tonnage.benchmark.layers.scenes import elementwise, images, indices, products, reductions, updates
from tonnage.benchmark.layers.scenes.bench import Bench, Maker, Scene, Stage
from tonnage.errors import NotFound

__all__ = ["MAKERS", "Scene", "Stage", "build"]

MAKERS: dict[str, Maker] = {
    make.__name__: make
    for room in (products, images, elementwise, indices, reductions, updates)
    for make in room.MAKERS
}


def build(layer: Layer, device: str) -> Scene:
    """The layer's forward and backward pass as one call."""
    if layer.kind not in MAKERS:
        raise NotFound(f"there is no layer {layer.kind}", f"known are {', '.join(MAKERS)}")
    return MAKERS[layer.kind](Bench(device, layer.dtype), **layer.numbers)
