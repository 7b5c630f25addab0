"""The classic networks of Caffe's zoo, from their published architectures, with random weights.

    python zoo.py FOLDER [--only NAME ...]

writes NAME.prototxt and NAME.caffemodel of each. Weights are scaled so that numbers stay near 1 through all layers.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from zoo_detection import enet, hed, openpose, ssd_mobilenet, ssd_vgg
from zoo_text import Text

from tonnage.program.caffe import load
from tonnage.program.caffe.network import Network

# -- one after the other ----------------------------------------------------------------------------------------------


def lenet() -> Text:
    net = Text("LeNet", 1, 1, 28, 28)
    net.conv("conv1", 20, 5)
    net.pool("pool1", 2, 2)
    net.conv("conv2", 50, 5)
    net.pool("pool2", 2, 2)
    net.product("ip1", 500)
    net.relu()
    net.product("ip2", 10)
    net.softmax()
    return net


def caffenet(normalises_first: bool = False) -> Text:
    """CaffeNet pools before it normalises; AlexNet is the reverse."""
    net = Text("AlexNet" if normalises_first else "CaffeNet", 1, 3, 227, 227)
    for number, (outputs, kernel, more) in enumerate(((96, 11, "stride: 4"), (256, 5, "pad: 2 group: 2")), 1):
        net.conv_relu(f"conv{number}", outputs, kernel, more=more)
        if normalises_first:
            net.lrn(f"norm{number}")
        net.pool(f"pool{number}", 3, 2)
        if not normalises_first:
            net.lrn(f"norm{number}")
    net.conv_relu("conv3", 384, 3, more="pad: 1")
    net.conv_relu("conv4", 384, 3, more="pad: 1 group: 2")
    net.conv_relu("conv5", 256, 3, more="pad: 1 group: 2")
    net.pool("pool5", 3, 2)
    return _classified(net)


def _classified(net: Text) -> Text:
    """The three products of AlexNet and VGG."""
    for name in ("fc6", "fc7"):
        net.product(name, 4096)
        net.relu()
        net.dropout()
    net.product("fc8", 1000)
    net.softmax()
    return net


def vgg16() -> Text:
    net = Text("VGG16", 1, 3, 224, 224)
    for block, (count, outputs) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), 1):
        for number in range(1, count + 1):
            net.conv_relu(f"conv{block}_{number}", outputs, 3, more="pad: 1")
        net.pool(f"pool{block}", 2, 2)
    return _classified(net)


def nin() -> Text:
    """Network in network."""
    net = Text("NIN", 1, 3, 224, 224)
    blocks = ((96, 11, "stride: 4"), (256, 5, "pad: 2"), (384, 3, "pad: 1"), (1024, 3, "pad: 1"))
    for number, (outputs, kernel, more) in enumerate(blocks, 1):
        net.conv_relu(f"conv{number}", outputs, kernel, more=more)
        net.conv_relu(f"cccp{number}a", outputs, 1)
        net.conv_relu(f"cccp{number}b", 1000 if number == 4 else outputs, 1)
        if number < 4:
            net.pool(f"pool{number}", 3, 2)
    net.global_mean("pool4")
    net.softmax()
    return net


# -- with branches ----------------------------------------------------------------------------------------------------

_INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64), "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64), "4c": (128, 128, 256, 24, 64, 64), "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128), "5a": (256, 160, 320, 32, 128, 128), "5b": (384, 192, 384, 48, 128, 128),
}  # fmt: skip


def googlenet() -> Text:
    net = Text("GoogleNet", 1, 3, 224, 224)
    net.conv_relu("conv1", 64, 7, more="pad: 3 stride: 2")
    net.pool("pool1", 3, 2)
    net.lrn("norm1")
    net.conv_relu("conv2_reduce", 64, 1)
    net.conv_relu("conv2", 192, 3, more="pad: 1")
    net.lrn("norm2")
    net.pool("pool2", 3, 2)
    for name, (one, three_in, three, five_in, five, pooled) in _INCEPTIONS.items():
        data = net.last
        a = net.conv_relu(f"{name}/1x1", one, 1, data)
        net.conv_relu(f"{name}/3x3_reduce", three_in, 1, data)
        b = net.conv_relu(f"{name}/3x3", three, 3, more="pad: 1")
        net.conv_relu(f"{name}/5x5_reduce", five_in, 1, data)
        c = net.conv_relu(f"{name}/5x5", five, 5, more="pad: 2")
        net.pool(f"{name}/pool", 3, 1, data, pad=1)
        d = net.conv_relu(f"{name}/pool_proj", pooled, 1)
        net.join(f"{name}/output", a, b, c, d)
        if name in ("3b", "4e"):
            net.pool(f"pool{name}", 3, 2)
    net.pool("pool5", 7, 1, kind="AVE")
    net.dropout()
    net.product("classifier", 1000)
    net.softmax()
    return net


def squeezenet() -> Text:
    """Version 1.1."""
    net = Text("SqueezeNet v1.1", 1, 3, 227, 227)
    net.conv_relu("conv1", 64, 3, more="stride: 2")
    net.pool("pool1", 3, 2)
    for number, squeezed in enumerate((16, 16, 32, 32, 48, 48, 64, 64), 2):
        net.conv_relu(f"fire{number}/squeeze", squeezed, 1)
        small = net.last
        a = net.conv_relu(f"fire{number}/expand1x1", 4 * squeezed, 1, small)
        b = net.conv_relu(f"fire{number}/expand3x3", 4 * squeezed, 3, small, "pad: 1")
        net.join(f"fire{number}/concat", a, b)
        if number in (3, 5):
            net.pool(f"pool{number}", 3, 2)
    net.dropout()
    net.conv_relu("conv10", 1000, 1)
    net.global_mean("pool10")
    net.softmax()
    return net


def resnet(blocks: tuple[int, ...], narrow: bool, squeezes: bool = False) -> Text:
    """`narrow` blocks have a bottleneck (50 layers and more); with `squeezes` they weigh their channels (SE)."""
    net = Text("ResNet", 1, 3, 224, 224)
    net.conv_norm_relu("conv1", 64, 7, more="pad: 3 stride: 2")
    net.pool("pool1", 3, 2)
    for stage, count in enumerate(blocks):
        for number in range(count):
            stride = 2 if stage and not number else 1
            _residual(net, f"res{stage + 2}_{number}", 64 << stage, stride, narrow, squeezes, first=not number)
    net.global_mean("pool5")
    net.product("fc1000", 1000)
    net.softmax()
    return net


def _residual(net: Text, name: str, width: int, stride: int, narrow: bool, squeezes: bool, first: bool) -> None:
    data, outputs, step = net.last, 4 * width if narrow else width, f"stride: {stride}"
    if narrow:
        net.conv_norm_relu(f"{name}_a", width, 1, more=step)
        net.conv_norm_relu(f"{name}_b", width, 3, more="pad: 1")
        net.conv_norm(f"{name}_c", outputs, 1)
    else:
        net.conv_norm_relu(f"{name}_a", width, 3, more=f"pad: 1 {step}")
        net.conv_norm(f"{name}_b", outputs, 3, more="pad: 1")
    made = net.last
    if squeezes:
        net.global_mean(f"{name}_mean")
        net.conv_relu(f"{name}_down", outputs // 16, 1)
        net.conv(f"{name}_up", outputs, 1)
        net.inplace("Sigmoid", f"{name}_sigmoid")
        net.layer("Reshape", f"{name}_flat", "reshape_param { shape { dim: 0 dim: -1 } }")
        made = net.layer("Scale", f"{name}_weighed", "scale_param { axis: 0 }", made, f"{name}_flat")
    kept = net.conv_norm(f"{name}_kept", outputs, 1, data, step) if first and (narrow or stride > 1) else data
    net.add(name, kept, made)
    net.relu()


def densenet121() -> Text:
    net = Text("DenseNet-121", 1, 3, 224, 224)
    net.conv_norm_relu("conv1", 64, 7, more="pad: 3 stride: 2")
    net.pool("pool1", 3, 2, pad=1)
    channels = 64
    for block, count in enumerate((6, 12, 24, 16), 2):
        for number in range(1, count + 1):
            data, name = net.last, f"conv{block}_{number}"
            _before(net, f"{name}/x1", 128, 1)
            _before(net, f"{name}/x2", 32, 3, "pad: 1")
            net.join(f"concat{block}_{number}", data, net.last)
            channels += 32
        if block < 5:
            channels //= 2
            _before(net, f"conv{block}_blk", channels, 1)
            net.pool(f"pool{block}", 2, 2, kind="AVE")
    _normed(net, "last")
    net.global_mean("pool5")
    net.conv("fc6", 1000, 1)
    net.softmax()
    return net


def _normed(net: Text, name: str) -> None:
    net.layer("BatchNorm", f"{name}/bn", "batch_norm_param { use_global_stats: true eps: 1e-5 }")
    net.inplace("Scale", f"{name}/scale", "scale_param { bias_term: true }")
    net.relu()


def _before(net: Text, name: str, outputs: int, kernel: int, more: str = "") -> None:
    """Normalised before it is convolved."""
    _normed(net, name)
    net.conv(name, outputs, kernel, more=f"bias_term: false {more}")


# -- small ones -------------------------------------------------------------------------------------------------------


def mobilenet_v1() -> Text:
    net = Text("MobileNet", 1, 3, 224, 224)
    net.conv_norm_relu("conv1", 32, 3, more="pad: 1 stride: 2")
    channels = 32
    steps = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
    for number, (outputs, stride) in enumerate(steps, 2):
        net.conv_norm_relu(f"conv{number}/dw", channels, 3, more=f"pad: 1 stride: {stride} group: {channels}")
        net.conv_norm_relu(f"conv{number}/sep", outputs, 1)
        channels = outputs
    net.global_mean("pool6")
    net.conv("fc7", 1000, 1)
    net.softmax()
    return net


def mobilenet_v2() -> Text:
    net = Text("MobileNet v2", 1, 3, 224, 224)
    net.conv_norm_relu("conv1", 32, 3, more="pad: 1 stride: 2", relu="ReLU6")
    channels, number = 32, 0
    for factor, outputs, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for place in range(count):
            data, wide, name, step = net.last, factor * channels, f"conv{number}", 1 if place else stride
            if factor > 1:
                net.conv_norm_relu(f"{name}/expand", wide, 1, relu="ReLU6")
            net.conv_norm_relu(f"{name}/dw", wide, 3, more=f"pad: 1 stride: {step} group: {wide}", relu="ReLU6")
            net.conv_norm(f"{name}/linear", outputs, 1)
            if place:
                net.add(f"{name}/sum", data, net.last)
            channels, number = outputs, number + 1
    net.conv_norm_relu("conv_last", 1280, 1, relu="ReLU6")
    net.global_mean("pool")
    net.conv("fc7", 1000, 1)
    net.softmax()
    return net


def shufflenet() -> Text:
    """Version 1 with three groups."""
    net = Text("ShuffleNet", 1, 3, 224, 224)
    net.conv_norm_relu("conv1", 24, 3, more="pad: 1 stride: 2")
    net.pool("pool1", 3, 2)
    channels = 24
    for stage, (outputs, count) in enumerate(((240, 4), (480, 8), (960, 4)), 2):
        for number in range(count):
            data, name, first = net.last, f"stage{stage}_{number}", not number
            group = 1 if stage == 2 and first else 3
            net.conv_norm_relu(f"{name}/a", outputs // 4, 1, more=f"group: {group}")
            net.layer("ShuffleChannel", f"{name}/shuffle", "shuffle_channel_param { group: 3 }")
            step = f"pad: 1 stride: {2 if first else 1} group: {outputs // 4}"
            net.conv_norm(f"{name}/b", outputs // 4, 3, more=step)
            made = net.conv_norm(f"{name}/c", outputs - channels if first else outputs, 1, more="group: 3")
            if first:
                net.join(name, net.pool(f"{name}/pool", 3, 2, data, kind="AVE"), made)
            else:
                net.add(name, data, made)
            net.relu()
            channels = outputs
    net.global_mean("pool_ave")
    net.conv("fc1000", 1000, 1)
    net.softmax()
    return net


def mtcnn(name: str, size: int, widths: tuple[int, ...], kernels: tuple[int, ...], flat: int) -> Text:
    """Second and third stage of the face detector."""
    net = Text(name, 1, 3, size, size)
    for number, (width, kernel) in enumerate(zip(widths, kernels, strict=True), 1):
        net.conv(f"conv{number}", width, kernel)
        net.inplace("PReLU", f"prelu{number}")
        if number < len(widths):
            net.pool(f"pool{number}", 2 if number == 3 else 3, 2)
    net.product("conv5", flat)
    shared = net.inplace("PReLU", "prelu5")
    net.product("conv6-1", 2, shared)
    net.softmax("prob1")
    net.product("conv6-2", 4, shared)
    return net


# -- images out of images ---------------------------------------------------------------------------------------------


def fcn8s() -> Text:
    """VGG16 without products, enlarged by transposed convolutions, with two skips."""
    net = Text("FCN8s", 1, 3, 128, 128)
    kept = {}
    for block, (count, outputs) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), 1):
        for number in range(1, count + 1):
            pad = 100 if (block, number) == (1, 1) else 1
            net.conv_relu(f"conv{block}_{number}", outputs, 3, more=f"pad: {pad}")
        kept[block] = net.pool(f"pool{block}", 2, 2)
    net.conv_relu("fc6", 1024, 7)
    net.conv_relu("fc7", 1024, 1)
    net.conv("score_fr", 21, 1)
    up = _enlarged(net, "upscore2", 4, 2)
    for block, offset, factor in ((4, 5, 2), (3, 9, 8)):
        net.conv(f"score_pool{block}", 21, 1, kept[block])
        cropped = net.layer("Crop", f"score_pool{block}c", f"crop_param {{ axis: 2 offset: {offset} }}", net.last, up)
        net.add(f"fuse_pool{block}", up, cropped)
        up = _enlarged(net, f"upscore_pool{block}", 2 * factor, factor)
    net.layer("Crop", "score", "crop_param { axis: 2 offset: 31 }", up, "data")
    return net


def _enlarged(net: Text, name: str, kernel: int, stride: int) -> str:
    settings = f"num_output: 21 kernel_size: {kernel} stride: {stride} bias_term: false"
    return net.layer("Deconvolution", name, f"convolution_param {{ {settings} }}")


NETWORKS: dict[str, Callable[[], Text]] = {
    "lenet": lenet,
    "caffenet": caffenet,
    "alexnet": lambda: caffenet(normalises_first=True),
    "vgg16": vgg16,
    "nin": nin,
    "googlenet": googlenet,
    "squeezenet_v1.1": squeezenet,
    "resnet18": lambda: resnet((2, 2, 2, 2), narrow=False),
    "resnet50": lambda: resnet((3, 4, 6, 3), narrow=True),
    "se_resnet50": lambda: resnet((3, 4, 6, 3), narrow=True, squeezes=True),
    "densenet121": densenet121,
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "shufflenet": shufflenet,
    "det2": lambda: mtcnn("RNet", 24, (28, 48, 64), (3, 3, 2), 128),
    "det3": lambda: mtcnn("ONet", 48, (32, 64, 64, 128), (3, 3, 3, 2), 256),
    "ssd_mobilenet": ssd_mobilenet,
    "ssd_vgg": ssd_vgg,
    "fcn8s": fcn8s,
    "enet": enet,
    "hed": hed,
    "openpose": openpose,
}


def write(folder: Path, name: str) -> Path:
    """The two files of a network; returns the prototxt."""
    prototxt = folder / f"{name}.prototxt"
    prototxt.write_text(str(NETWORKS[name]()))
    prototxt.with_suffix(".caffemodel").write_bytes(caffemodel(random_weights(load(prototxt).network)))
    return prototxt


def random_weights(network: Network, seed: int = 0) -> dict[str, list[np.ndarray]]:
    """Such as training might begin with; those of normalisations and slopes are near what they do after it."""
    random = np.random.default_rng(seed)
    made: dict[str, list[np.ndarray]] = {}
    added = {name for layer in network.layers if layer.type == "Eltwise" for name in layer.bottoms}
    for layer in network.layers:
        shapes = network.weights.get(layer.name, ())
        if not shapes:
            continue
        if layer.type == "BatchNorm":
            mean, variance = (random.normal(0, 0.1, shapes[0]), random.uniform(0.8, 1.2, shapes[0]))
            arrays = [mean, variance, np.ones(1)]
        elif layer.type in ("Scale", "BN"):
            most = 0.3 if layer.tops[0] in added else 1.2  # or sums would grow from block to block
            arrays = [
                random.uniform(most - 0.2, most, shapes[0]),
                *(random.normal(0, 0.1, each) for each in shapes[1:]),
            ]
            if len(arrays) == 4:
                arrays[3] = random.uniform(0.8, 1.2, shapes[3])
        elif layer.type == "Normalize":
            arrays = [np.full(each, 20.0) for each in shapes]
        elif layer.type == "PReLU":
            arrays = [random.uniform(0.1, 0.3, each) for each in shapes]
        else:
            less = 0.1 if layer.name.endswith("mbox_loc") else 1  # boxes stay near where they begin
            arrays = [random.normal(0, 0.02 if len(each) < 2 else less * _spread(each), each) for each in shapes]
        made[layer.name] = [np.asarray(array, np.float32) for array in arrays]
    return made


def _spread(shape: tuple[int, ...]) -> float:
    return float((2 / np.prod(shape[1:])) ** 0.5)


# -- the file of the weights ------------------------------------------------------------------------------------------


def caffemodel(weights: dict[str, list[np.ndarray]]) -> bytes:
    """As Caffe's newest version writes it."""
    layers = b"".join(
        _field(100, _field(1, name.encode()) + b"".join(_field(7, _blob(array)) for array in arrays))
        for name, arrays in weights.items()
    )
    return _field(1, b"zoo") + layers


def _blob(array: np.ndarray) -> bytes:
    sizes = b"".join(_varint(size) for size in array.shape)
    return _field(7, _field(1, sizes)) + _field(5, array.tobytes())


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    made = b""
    while number > 0x7F:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=list(NETWORKS))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        print(write(options.folder, name))


if __name__ == "__main__":
    main()
