"""Real networks with random weights: `MODELS` has a function for each that returns a module and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Built = tuple[nn.Module, dict[str, Any]]


def gpt2(batch: int = 1, words: int = 128, layers: int = 12) -> Built:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=layers)), {"input_ids": _words(batch, words), "use_cache": False}


def gpt2_medium(batch: int = 1, words: int = 64) -> Built:
    return gpt2(batch, words, layers=24)


def bert(batch: int = 1, words: int = 128) -> Built:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()), {"input_ids": _words(batch, words)}


def vit(batch: int = 1) -> Built:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig()), {"pixel_values": torch.rand(batch, 3, 224, 224)}


def t5(batch: int = 1, words: int = 64, layers: int = 6) -> Built:
    from transformers import T5Config, T5ForConditionalGeneration

    inputs = {"input_ids": _words(batch, words), "decoder_input_ids": _words(batch, words), "use_cache": False}
    return T5ForConditionalGeneration(T5Config(tie_word_embeddings=True, num_layers=layers)), inputs


def llama(batch: int = 1, words: int = 64) -> Built:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=8,
        hidden_size=512,
        intermediate_size=1408,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=32000,
    )
    return LlamaForCausalLM(config), {"input_ids": _words(batch, words), "use_cache": False}


def resnet50(batch: int = 1) -> Built:
    return ResNet((3, 4, 6, 3)), {"images": torch.rand(batch, 3, 224, 224)}


def resnet152(batch: int = 1) -> Built:
    return ResNet((3, 8, 36, 3)), {"images": torch.rand(batch, 3, 224, 224)}


def cells(batch: int = 1) -> Built:
    return Cells(cells=7, width=32), {"images": torch.rand(batch, 3, 112, 112)}


def _words(batch: int, words: int) -> torch.Tensor:
    return torch.zeros(batch, words, dtype=torch.long)


MODELS: dict[str, Callable[..., Built]] = {
    function.__name__: function for function in (gpt2, gpt2_medium, bert, vit, t5, llama, resnet50, resnet152, cells)
}


# -- convolutional networks -----------------------------------------------------------------------------------------------


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = outputs // 4
        self.relu = nn.ReLU(inplace=True)
        self.narrow = _convolution(inputs, inner, 1)
        self.middle = _convolution(inner, inner, 3, stride)
        self.wide = _convolution(inner, outputs, 1)
        changes = stride > 1 or inputs != outputs
        self.shortcut = _convolution(inputs, outputs, 1, stride) if changes else nn.Identity()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        inner = self.relu(self.middle(self.relu(self.narrow(images))))
        return self.relu(self.wide(inner) + self.shortcut(images))


class ResNet(nn.Module):
    def __init__(self, blocks: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Sequential(_convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        channels, made = 64, []
        for stage, count in enumerate(blocks):
            for number in range(count):
                made.append(Bottleneck(channels, 256 << stage, 2 if stage and not number else 1))
                channels = 256 << stage
        self.blocks = nn.Sequential(*made)
        self.head = nn.Linear(channels, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


class Separable(nn.Module):
    def __init__(self, channels: int, size: int, stride: int) -> None:
        super().__init__()
        made = []
        for step in (stride, 1):
            depthwise = nn.Conv2d(channels, channels, size, step, size // 2, groups=channels, bias=False)
            made += [nn.ReLU(), depthwise, _convolution(channels, channels, 1)]
        self.layers = nn.Sequential(*made)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


class Cell(nn.Module):
    """Reads the two cells before it, as those of networks that were found by search do."""

    def __init__(self, before: int, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.from_last = nn.Sequential(nn.ReLU(), _convolution(channels, width, 1))
        self.from_before = nn.Sequential(nn.ReLU(), _convolution(before, width, 1))
        self.branches = nn.ModuleList(Separable(width, size, stride) for size in (5, 3, 5, 3, 3))
        self.pool = nn.AvgPool2d(3, stride, 1)

    def forward(self, before: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        last, other = self.from_last(images), self.from_before(before)
        if other.shape[-1] != last.shape[-1]:
            other = other[..., ::2, ::2]
        first, second, third, fourth, fifth = self.branches
        sums = (
            first(last) + second(other),
            third(other) + fourth(other),
            self.pool(last) + other if self.pool.stride == 1 else self.pool(last) + self.pool(other),
            self.pool(other) + fifth(last),
        )
        return torch.cat(sums, 1)


class Cells(nn.Module):
    def __init__(self, cells: int, width: int) -> None:
        super().__init__()
        self.stem = _convolution(3, width, 3, 2)
        before = channels = width
        made = []
        for stage in range(3):
            for number in range(cells):
                made.append(Cell(before, channels, width << stage, 2 if stage and not number else 1))
                before, channels = channels, 4 * (width << stage)
        self.cells = nn.ModuleList(made)
        self.head = nn.Linear(channels, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        before = last = self.stem(images)
        for cell in self.cells:
            before, last = last, cell(before, last)
        return self.head(last.mean((2, 3)))
