"""Transformers that predict a token at every position: encoders see all of the sequence, decoders only what came before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tonnage.benchmark.workloads import layer
from tonnage.benchmark.workloads.family import Family, Structure, whole
from tonnage.benchmark.workloads.layer import Layer
from tonnage.benchmark.workloads.number import Number

if TYPE_CHECKING:
    from tonnage.benchmark.workloads.workload import Workload


class Transformer(Family):
    """Token models with learned positions, normalisation before each part, and an output layer of its own."""

    name = "transformer"
    help = "Token model: embeddings, blocks of attention and feed-forward with layer norm and GELU, output layer."
    numbers = (
        Number(name="depth", low=0, high=48, default=4, scale="linear", linear="always", help="number of blocks"),
        # Every allowed number of heads divides every allowed width, so that the two can be moved one at a time.
        Number(name="width", low=16, high=8192, default=256, multiple=16, help="width of a token"),
        Number(name="heads", choices=(1, 2, 4, 8, 16), default=8, help="heads that share the width"),
        Number(name="sequence", low=8, high=8192, default=128, linear="always", help="tokens of one sample"),
        Number(name="vocabulary", low=256, high=131072, default=8192, linear="always", help="different tokens"),
        Number(
            name="feedforward",
            low=1,
            high=8,
            default=4,
            scale="linear",
            linear="always",
            help="width of the feed-forward layer as a multiple of `width`",
        ),
        Number(
            name="kind",
            choices=("encoder", "decoder"),
            default="decoder",
            help="`decoder`: attention is causal; `encoder`: every token sees every other",
        ),
    )

    def _input_shape(self, point: Structure) -> tuple[int, ...]:
        return (whole(point, "sequence"),)

    def _layers(self, point: Structure) -> Iterator[Layer]:
        width, sequence, vocabulary = (whole(point, name) for name in ("width", "sequence", "vocabulary"))
        yield layer.embedding("tokens", vocabulary, width, sequence)
        yield layer.embedding("positions", sequence, width, sequence)
        for position in range(1, whole(point, "depth") + 1):
            yield from _block(f"block{position}", width, sequence, whole(point, "feedforward") * width)
        yield layer.norm("norm", width, sequence)
        yield layer.dense("output", width, vocabulary, sequence)

    def _build(self, point: Structure) -> Workload:
        from tonnage.benchmark.workloads.networks.transformer import TransformerNetwork
        from tonnage.benchmark.workloads.workload import Workload, token_loss, tokens_and_tokens

        names = ("depth", "width", "heads", "sequence", "vocabulary", "feedforward")
        return Workload(
            module=TransformerNetwork(
                **{name: whole(point, name) for name in names}, is_causal=point["kind"] == "decoder"
            ),
            draw=tokens_and_tokens(whole(point, "sequence"), whole(point, "vocabulary")),
            loss=token_loss,
        )


def _block(name: str, width: int, sequence: int, inner: int) -> Iterator[Layer]:
    yield layer.norm(f"{name}.norm1", width, sequence)
    yield layer.dense(f"{name}.projections", width, 3 * width, sequence)
    yield layer.attention(f"{name}.attention", width, sequence)
    yield layer.dense(f"{name}.merge", width, width, sequence)
    yield layer.norm(f"{name}.norm2", width, sequence)
    yield layer.dense(f"{name}.expand", width, inner, sequence)
    yield layer.dense(f"{name}.contract", inner, width, sequence)
