"""Writes prototxts layer by layer: a text that grows, and the name of the blob that was made last."""

from __future__ import annotations

Blob = str


class Text:
    """Layers in the order of their calls. Each returns the name of its top; where no bottom is named it reads the last top."""

    def __init__(self, name: str, *shape: int, data: str = "data") -> None:
        dims = " ".join(f"dim: {size}" for size in shape)
        self._lines = [
            f'name: "{name}"',
            f'layer {{ name: "{data}" type: "Input" top: "{data}" input_param {{ shape {{ {dims} }} }} }}',
        ]
        self.last: Blob = data

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"

    def layer(self, kind: str, name: str, settings: str = "", *bottoms: Blob, tops: tuple[Blob, ...] = ()) -> Blob:
        reads = " ".join(f'bottom: "{each}"' for each in bottoms or (self.last,))
        makes = " ".join(f'top: "{each}"' for each in tops or (name,))
        self._lines.append(f'layer {{ name: "{name}" type: "{kind}" {reads} {makes} {settings} }}')
        self.last = (tops or (name,))[0]
        return self.last

    def inplace(self, kind: str, name: str, settings: str = "") -> Blob:
        return self.layer(kind, name, settings, self.last, tops=(self.last,))

    # -- what many networks have --------------------------------------------------------------------------------------

    def conv(self, name: str, outputs: int, kernel: int, bottom: Blob = "", more: str = "") -> Blob:
        settings = f"convolution_param {{ num_output: {outputs} kernel_size: {kernel} {more} }}"
        return self.layer("Convolution", name, settings, bottom or self.last)

    def relu(self, kind: str = "ReLU") -> Blob:
        return self.inplace(kind, f"{self.last}/{kind.lower()}")

    def conv_relu(self, name: str, outputs: int, kernel: int, bottom: Blob = "", more: str = "") -> Blob:
        self.conv(name, outputs, kernel, bottom, more)
        return self.relu()

    def norm(self) -> Blob:
        """BatchNorm and Scale, as networks after 2015 have them."""
        name = self.last
        self.inplace("BatchNorm", f"{name}/bn", "batch_norm_param { use_global_stats: true eps: 1e-5 }")
        return self.inplace("Scale", f"{name}/scale", "scale_param { bias_term: true }")

    def conv_norm(self, name: str, outputs: int, kernel: int, bottom: Blob = "", more: str = "") -> Blob:
        self.conv(name, outputs, kernel, bottom, f"bias_term: false {more}")
        return self.norm()

    def conv_norm_relu(
        self, name: str, outputs: int, kernel: int, bottom: Blob = "", more: str = "", relu: str = "ReLU"
    ) -> Blob:
        self.conv_norm(name, outputs, kernel, bottom, more)
        return self.relu(relu)

    def pool(self, name: str, kernel: int, stride: int, bottom: Blob = "", kind: str = "MAX", pad: int = 0) -> Blob:
        settings = f"pooling_param {{ pool: {kind} kernel_size: {kernel} stride: {stride} pad: {pad} }}"
        return self.layer("Pooling", name, settings, bottom or self.last)

    def global_mean(self, name: str, bottom: Blob = "") -> Blob:
        return self.layer("Pooling", name, "pooling_param { pool: AVE global_pooling: true }", bottom or self.last)

    def product(self, name: str, outputs: int, bottom: Blob = "") -> Blob:
        return self.layer("InnerProduct", name, f"inner_product_param {{ num_output: {outputs} }}", bottom or self.last)

    def lrn(self, name: str) -> Blob:
        return self.layer("LRN", name, "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")

    def dropout(self) -> Blob:
        return self.inplace("Dropout", f"{self.last}/drop", "dropout_param { dropout_ratio: 0.5 }")

    def add(self, name: str, first: Blob, second: Blob) -> Blob:
        return self.layer("Eltwise", name, "eltwise_param { operation: SUM }", first, second)

    def join(self, name: str, *bottoms: Blob, axis: int = 1) -> Blob:
        return self.layer("Concat", name, f"concat_param {{ axis: {axis} }}", *bottoms)

    def softmax(self, name: str = "prob", bottom: Blob = "", axis: int = 1) -> Blob:
        return self.layer("Softmax", name, f"softmax_param {{ axis: {axis} }}", bottom or self.last)
