"""Networks of Caffe's first years in today's form: V0 (a `layer` in each `layers`) and V1 (types in capital letters).

As Caffe does it: padding layers of V0 become the padding of the layer behind them; settings of the data that stood with the
source stand in `transform_param`; `input` with its dimensions becomes an Input layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from tonnage.errors import InvalidFile
from tonnage.program.caffe.message import Message, at, one_line

_V1_TYPES = {
    "NONE": "", "ABSVAL": "AbsVal", "ACCURACY": "Accuracy", "ARGMAX": "ArgMax", "BNLL": "BNLL", "CONCAT": "Concat",
    "CONTRASTIVE_LOSS": "ContrastiveLoss", "CONVOLUTION": "Convolution", "DATA": "Data", "DECONVOLUTION": "Deconvolution",
    "DROPOUT": "Dropout", "DUMMY_DATA": "DummyData", "EUCLIDEAN_LOSS": "EuclideanLoss", "ELTWISE": "Eltwise", "EXP": "Exp",
    "FLATTEN": "Flatten", "HDF5_DATA": "HDF5Data", "HDF5_OUTPUT": "HDF5Output", "HINGE_LOSS": "HingeLoss",
    "IM2COL": "Im2col", "IMAGE_DATA": "ImageData", "INFOGAIN_LOSS": "InfogainLoss", "INNER_PRODUCT": "InnerProduct",
    "LRN": "LRN", "MEMORY_DATA": "MemoryData", "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss", "MVN": "MVN",
    "POOLING": "Pooling", "POWER": "Power", "RELU": "ReLU", "SIGMOID": "Sigmoid",
    "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss", "SILENCE": "Silence", "SOFTMAX": "Softmax",
    "SOFTMAX_LOSS": "SoftmaxWithLoss", "SPLIT": "Split", "SLICE": "Slice", "TANH": "TanH", "WINDOW_DATA": "WindowData",
    "THRESHOLD": "Threshold",
}  # fmt: skip
_V0_TYPES = {
    "accuracy": "Accuracy", "bnll": "BNLL", "concat": "Concat", "conv": "Convolution", "data": "Data",
    "dropout": "Dropout", "euclidean_loss": "EuclideanLoss", "flatten": "Flatten", "hdf5_data": "HDF5Data",
    "hdf5_output": "HDF5Output", "im2col": "Im2col", "images": "ImageData", "infogain_loss": "InfogainLoss",
    "innerproduct": "InnerProduct", "lrn": "LRN", "multinomial_logistic_loss": "MultinomialLogisticLoss",
    "pool": "Pooling", "relu": "ReLU", "sigmoid": "Sigmoid", "softmax": "Softmax", "softmax_loss": "SoftmaxWithLoss",
    "split": "Split", "tanh": "TanH", "window_data": "WindowData",
}  # fmt: skip
# What V0 says about a layer of this type, and what it is called now.
_V0_SETTINGS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "Convolution": ("convolution_param", {
        "num_output": "num_output", "biasterm": "bias_term", "weight_filler": "weight_filler", "group": "group",
        "bias_filler": "bias_filler", "pad": "pad", "kernelsize": "kernel_size", "stride": "stride"}),
    "InnerProduct": ("inner_product_param", {
        "num_output": "num_output", "biasterm": "bias_term", "weight_filler": "weight_filler",
        "bias_filler": "bias_filler"}),
    "Pooling": ("pooling_param", {"pool": "pool", "pad": "pad", "kernelsize": "kernel_size", "stride": "stride"}),
    "LRN": ("lrn_param", {"local_size": "local_size", "alpha": "alpha", "beta": "beta", "k": "k"}),
    "Concat": ("concat_param", {"concat_dim": "concat_dim"}),
    "Data": ("data_param", {"batchsize": "batch_size", "cropsize": "crop_size"}),
    "HDF5Data": ("hdf5_data_param", {"batchsize": "batch_size"}),
    "WindowData": ("window_data_param", {"batchsize": "batch_size", "cropsize": "crop_size"}),
    "ImageData": ("image_data_param", {
        "batchsize": "batch_size", "cropsize": "crop_size", "new_height": "new_height", "new_width": "new_width"}),
}  # fmt: skip
_PADDED = ("conv", "pool")


def upgraded(net: Message) -> Message:
    """The same network in today's form; raises `InvalidFile`."""
    old = net.all("layers")
    if old and "layer" in net:
        _refuse(net, old[0].line, "layers of the old form (layers) stand among new ones (layer)")
    if old:
        layers = _without_padding(old) if any("layer" in each for each in old) else old
        net.put("layer", *(_from_v0(each) if "layer" in each else _from_v1(each) for each in layers))
    _move_crop_sizes(net)
    return _with_input_layers(net)


def _from_v1(old: Message) -> Message:
    layer = Message("LayerParameter", old.file, old.line)
    names = [name for name in old if name not in ("type", "layer")]
    layer.take(names, old)
    if "type" in old:
        layer.put("type", _V1_TYPES[old.get("type")])
    return layer


def _from_v0(old: Message) -> Message:
    inner = old.part("layer")
    layer = Message("LayerParameter", old.file, old.line)
    layer.take(("bottom", "top", "include", "exclude"), old)
    layer.take(("name", "blobs"), inner)
    written = inner.get("type") or ""
    if written not in _V0_TYPES:
        _refuse(inner, inner.line, f"layers of type {written!r} are unknown to this old form")
    layer.put("type", _V0_TYPES[written])
    settings = _V0_SETTINGS.get(_V0_TYPES[written])
    if settings is not None:
        name, fields = settings
        param = layer.part(name)
        for before, now in fields.items():
            if before in inner:
                param.put(now, inner.get(before))
        layer.put(name, param)
    return layer


def _without_padding(layers: list[Message]) -> list[Message]:
    """Each padding layer is folded into those that read it."""
    sources: dict[str, Message] = {}
    kept = []
    for layer in layers:
        inner = layer.part("layer")
        if inner.get("type") == "padding":
            if len(layer.all("bottom")) != 1 or len(layer.all("top")) != 1:
                _refuse(inner, inner.line, "a padding layer has one bottom and one top")
        else:
            kept.append(layer)
            _fold_padding(layer, inner, sources)
        sources.update(dict.fromkeys(layer.all("top"), layer))
    return kept


def _fold_padding(layer: Message, inner: Message, sources: Mapping[str, Message]) -> None:
    bottoms = []
    for name in layer.all("bottom"):
        source = sources.get(name)
        padding = source.part("layer") if source is not None else None
        if source is None or padding is None or padding.get("type") != "padding":
            bottoms.append(name)
            continue
        if inner.get("type") not in _PADDED:
            _refuse(inner, inner.line, f"{inner.get('type')} layers cannot read a padding layer")
        inner.put("pad", padding.get("pad"))
        bottoms.append(source.all("bottom")[0])
    layer.put("bottom", *bottoms)


def _move_crop_sizes(net: Message) -> None:
    for layer in net.all("layer"):
        for name in ("data_param", "image_data_param", "window_data_param"):
            if name in layer and layer.get(name).get("crop_size"):
                transform = layer.part("transform_param")
                transform.put("crop_size", layer.get(name).get("crop_size"))
                layer.put("transform_param", transform)


def _with_input_layers(net: Message) -> Message:
    names = net.all("input")
    if not names:
        return net
    dims, shapes = net.all("input_dim"), net.all("input_shape")
    if dims and shapes:
        _refuse(net, net.line_of("input"), "input_dim and input_shape both give the sizes of the inputs")
    if dims and len(dims) != 4 * len(names):
        _refuse(net, net.line_of("input_dim"), f"{len(names)} inputs need {4 * len(names)} input_dim, not {len(dims)}")
    if shapes and len(shapes) != len(names):
        _refuse(net, net.line_of("input_shape"), f"{len(names)} inputs need as many input_shape, not {len(shapes)}")
    made = []
    for number, name in enumerate(names):
        layer = Message("LayerParameter", net.file, net.line_of("input"))
        layer.put("name", name)
        layer.put("type", "Input")
        layer.put("top", name)
        if dims or shapes:
            shape = shapes[number] if shapes else Message("BlobShape", net.file, net.line_of("input_dim"))
            if dims:
                shape.put("dim", *dims[4 * number : 4 * number + 4])
            param = layer.part("input_param")
            param.put("shape", shape)
            layer.put("input_param", param)
        made.append(layer)
    net.put("layer", *made, *net.all("layer"))
    return net


def _refuse(message: Message, line: int, problem: str) -> NoReturn:
    raise InvalidFile(f"{at(message.file, line)}: {one_line(problem)}")
