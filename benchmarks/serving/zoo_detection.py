"""Networks that find things in images, or label every place of one: SSD, ENet, HED, and poses."""

from zoo_text import Text

_KINDS = 21


# -- SSD --------------------------------------------------------------------------------------------------------------


def ssd_mobilenet() -> Text:
    net = Text("MobileNet-SSD", 1, 3, 300, 300)
    net.conv_norm_relu("conv0", 32, 3, more="pad: 1 stride: 2")
    channels, kept = 32, {}
    steps = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
    for number, (outputs, stride) in enumerate(steps, 1):
        net.conv_norm_relu(f"conv{number}/dw", channels, 3, more=f"pad: 1 stride: {stride} group: {channels}")
        kept[number] = net.conv_norm_relu(f"conv{number}", outputs, 1)
        channels = outputs
    maps = [kept[11], kept[13]]
    for number, outputs in enumerate((512, 256, 256, 128), 14):
        net.conv_norm_relu(f"conv{number}_1", outputs // 2, 1)
        maps.append(net.conv_norm_relu(f"conv{number}_2", outputs, 3, more="pad: 1 stride: 2"))
    sizes = ((60, 0), (105, 150), (150, 195), (195, 240), (240, 285), (285, 300))
    return _detected(net, [(each, low, high, (2,) if not high else (2, 3), 1) for each, (low, high) in zip(
        maps, sizes, strict=True)])  # fmt: skip


def ssd_vgg() -> Text:
    """SSD300."""
    net = Text("VGG-SSD", 1, 3, 300, 300)
    for block, (count, outputs) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), 1):
        for number in range(1, count + 1):
            net.conv_relu(f"conv{block}_{number}", outputs, 3, more="pad: 1")
        if block == 4:
            settings = "norm_param { across_spatial: false channel_shared: false }"
            fourth = net.layer("Normalize", "conv4_3_norm", settings)
            net.last = "conv4_3"
        net.pool(f"pool{block}", *((3, 1) if block == 5 else (2, 2)), pad=1 if block == 5 else 0)
    net.conv_relu("fc6", 1024, 3, more="pad: 6 dilation: 6")
    maps = [fourth, net.conv_relu("fc7", 1024, 1)]
    for number, (outputs, more) in enumerate(
        ((512, "pad: 1 stride: 2"), (256, "pad: 1 stride: 2"), (256, ""), (256, "")), 6
    ):
        net.conv_relu(f"conv{number}_1", outputs // 2, 1)
        maps.append(net.conv_relu(f"conv{number}_2", outputs, 3, more=more))
    sizes = ((30, 60), (60, 111), (111, 162), (162, 213), (213, 264), (264, 315))
    ratios = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))
    return _detected(net, [(each, low, high, ratio, 3) for each, (low, high), ratio in zip(
        maps, sizes, ratios, strict=True)])  # fmt: skip


def _detected(net: Text, maps: list[tuple[str, int, int, tuple[int, ...], int]]) -> Text:
    """Places, kinds and prior boxes of each map, joined, and what is found of them."""
    places, kinds, priors = [], [], []
    for name, low, high, ratios, kernel in maps:
        boxes = 1 + bool(high) + 2 * len(ratios)
        more = f"pad: {kernel // 2}"
        for parts, width, kind in ((places, 4 * boxes, "loc"), (kinds, _KINDS * boxes, "conf")):
            net.conv(f"{name}_mbox_{kind}", width, kernel, name, more)
            net.layer("Permute", f"{name}_mbox_{kind}_perm", "permute_param { order: 0 order: 2 order: 3 order: 1 }")
            parts.append(net.layer("Flatten", f"{name}_mbox_{kind}_flat", "flatten_param { axis: 1 }"))
        shapes = " ".join(f"aspect_ratio: {ratio}" for ratio in ratios)
        most = f"max_size: {high}" if high else ""
        settings = f"min_size: {low} {most} {shapes} flip: true clip: false variance: 0.1 variance: 0.1 variance: 0.2"
        box = f"prior_box_param {{ {settings} variance: 0.2 offset: 0.5 }}"
        priors.append(net.layer("PriorBox", f"{name}_mbox_priorbox", box, name, "data"))
    loc = net.join("mbox_loc", *places)
    net.join("mbox_conf", *kinds)
    net.layer("Reshape", "mbox_conf_reshape", f"reshape_param {{ shape {{ dim: 0 dim: -1 dim: {_KINDS} }} }}")
    net.softmax("mbox_conf_softmax", axis=2)
    conf = net.layer("Flatten", "mbox_conf_flatten", "flatten_param { axis: 1 }")
    boxes = net.join("mbox_priorbox", *priors, axis=2)
    settings = (
        f"num_classes: {_KINDS} share_location: true background_label_id: 0 code_type: CENTER_SIZE keep_top_k: 100"
    )
    more = "confidence_threshold: 0.25 nms_param { nms_threshold: 0.45 top_k: 100 }"
    net.layer("DetectionOutput", "detection_out", f"detection_output_param {{ {settings} {more} }}", loc, conf, boxes)
    return net


# -- a label for every place ------------------------------------------------------------------------------------------


def enet() -> Text:
    """Bottlenecks that pool with masks and put the maxima back, as ENet's Caffe has them; two of its three middle stages."""
    net = Text("ENet", 1, 3, 256, 512)
    first = net.conv("conv0", 13, 3, more="pad: 1 stride: 2")
    net.join("initial", first, net.pool("pool0", 2, 2, "data"))
    _slope(net)
    masks = [_smaller(net, "b1_0", 16, 64)]
    for number in range(1, 5):
        _bottleneck(net, f"b1_{number}", 64)
    masks.append(_smaller(net, "b2_0", 64, 128))
    for number in range(1, 9):
        dilation = {2: 2, 4: 4, 6: 8, 8: 16}.get(number, 1)
        _bottleneck(net, f"b2_{number}", 128, dilation, number in (3, 7))
    for stage, outputs in ((4, 64), (5, 16)):
        _larger(net, f"b{stage}_0", outputs, masks.pop())
        for number in range(1, 3 if stage == 4 else 2):
            _bottleneck(net, f"b{stage}_{number}", outputs)
    net.layer("Deconvolution", "scores", "convolution_param { num_output: 19 kernel_size: 2 stride: 2 }")
    return net


def _slope(net: Text) -> str:
    return net.inplace("PReLU", f"{net.last}/prelu")


def _narrow(net: Text, name: str, outputs: int, kernel: int, more: str = "") -> None:
    net.conv_norm(name, outputs, kernel, more=more)
    _slope(net)


def _bottleneck(net: Text, name: str, outputs: int, dilation: int = 1, asymmetric: bool = False) -> None:
    data, inner = net.last, outputs // 4
    _narrow(net, f"{name}/reduce", inner, 1)
    if asymmetric:
        for suffix, height, width in (("v", 5, 1), ("h", 1, 5)):
            window = f"kernel_h: {height} kernel_w: {width} pad_h: {height // 2} pad_w: {width // 2}"
            settings = f"convolution_param {{ num_output: {inner} {window} bias_term: false }}"
            net.layer("Convolution", f"{name}/{suffix}", settings)
        net.norm()
        _slope(net)
    else:
        _narrow(net, f"{name}/conv", inner, 3, f"pad: {dilation} dilation: {dilation}")
    made = net.conv_norm(f"{name}/expand", outputs, 1)
    net.add(name, data, made)
    _slope(net)


def _smaller(net: Text, name: str, inputs: int, outputs: int) -> str:
    """Returns where the maxima were."""
    data, mask = net.last, f"{name}/mask"
    _narrow(net, f"{name}/reduce", inputs // 4 * 4, 2, "stride: 2")
    _narrow(net, f"{name}/conv", inputs, 3, "pad: 1")
    made = net.conv_norm(f"{name}/expand", outputs, 1)
    settings = "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"
    net.layer("Pooling", f"{name}/pool", settings, data, tops=(f"{name}/pool", mask))
    kept = net.conv_norm(f"{name}/wider", outputs, 1, f"{name}/pool")
    net.add(name, kept, made)
    _slope(net)
    return mask


def _larger(net: Text, name: str, outputs: int, mask: str) -> None:
    """The mask is that of the stage with as many channels as this one makes."""
    data = net.last
    _narrow(net, f"{name}/reduce", outputs // 2, 1)
    settings = f"convolution_param {{ num_output: {outputs // 2} kernel_size: 2 stride: 2 }}"
    net.layer("Deconvolution", f"{name}/deconv", settings)
    net.norm()
    _slope(net)
    made = net.conv_norm(f"{name}/expand", outputs, 1)
    net.conv_norm(f"{name}/kept", outputs, 1, data)
    kept = net.layer("Upsample", f"{name}/unpool", "upsample_param { scale: 2 }", net.last, mask)
    net.add(name, kept, made)
    _slope(net)


def hed() -> Text:
    """Edges at five scales, each enlarged to the image, and all of them weighed."""
    net = Text("HED", 1, 3, 160, 160)
    sides = []
    for block, (count, outputs) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), 1):
        for number in range(1, count + 1):
            net.conv_relu(f"conv{block}_{number}", outputs, 3, more="pad: 1")
        deepest = net.last
        net.conv(f"score{block}", 1, 1)
        if block > 1:
            factor = 2 ** (block - 1)
            settings = f"num_output: 1 kernel_size: {2 * factor} stride: {factor} bias_term: false"
            net.layer("Deconvolution", f"up{block}", f"convolution_param {{ {settings} }}")
        sides.append(net.layer("Crop", f"side{block}", "crop_param { axis: 2 offset: 0 }", net.last, "data"))
        net.last = deepest
        if block < 5:
            net.pool(f"pool{block}", 2, 2)
    net.join("sides", *sides)
    net.conv("fused", 1, 1)
    net.layer("Sigmoid", "edges")
    return net


def openpose() -> Text:
    """Ten layers of VGG19, and two of the six stages that follow."""
    net = Text("OpenPose", 1, 3, 184, 184)
    for block, (count, outputs) in enumerate(((2, 64), (2, 128), (4, 256), (2, 512)), 1):
        for number in range(1, count + 1):
            net.conv_relu(f"conv{block}_{number}", outputs, 3, more="pad: 1")
        if block < 4:
            net.pool(f"pool{block}", 2, 2)
    net.conv_relu("conv4_3_CPM", 256, 3, more="pad: 1")
    features = net.conv_relu("conv4_4_CPM", 128, 3, more="pad: 1")
    joined = features
    for stage, (kernel, count, wide) in enumerate(((3, 3, 512), (7, 5, 128)), 1):
        made = []
        for branch, outputs in (("L1", 38), ("L2", 19)):
            net.last = joined
            for number in range(1, count + 1):
                net.conv_relu(f"stage{stage}_{number}_{branch}", 128, kernel, more=f"pad: {kernel // 2}")
            net.conv_relu(f"stage{stage}_wide_{branch}", wide, 1)
            made.append(net.conv(f"stage{stage}_out_{branch}", outputs, 1))
        joined = net.join(f"concat_stage{stage}", *made, *([features] if stage == 1 else []))
    return net
