"""A point as the training or inference script that a user would have written, for `tonnage estimate`."""

import json

from tonnage.benchmark.workloads.point import Point

_OPTIMIZERS = {
    "sgd": "SGD(model.parameters(), lr=1e-3)",
    "momentum": "SGD(model.parameters(), lr=1e-3, momentum=0.9)",
    "adam": "Adam(model.parameters(), lr=1e-4)",
    "adamw": "AdamW(model.parameters(), lr=1e-4)",
}

_HEAD = '''"""{family}, batch {batch}, {precision}, {mode}: a sample workload of Tonnage."""

import torch

from tonnage.benchmark.workloads import find_family

BATCH_SIZE = {batch}
STEPS = 10

workload = find_family("{family}").build({structure})
model = workload.module.to("cuda"{layout})
host_inputs, host_targets = workload.sample(BATCH_SIZE)
'''
_CHANNELS_LAST = "host_inputs = host_inputs.contiguous(memory_format=torch.channels_last)\n"

_TRAINING = """
model.train()
optimizer = torch.optim.{optimizer}
{scaler}for _ in range(STEPS):
    inputs, targets = host_inputs.to("cuda"), host_targets.to("cuda")
{forward}
    {backward}
    {step}
    optimizer.zero_grad()
    loss.item()
"""

_INFERENCE = """
model.eval()
for _ in range(STEPS):
    inputs, targets = host_inputs.to("cuda"), host_targets.to("cuda")
{forward}
    outputs.cpu()
"""


def as_program(point: Point) -> str:
    """The text of a script that does in a loop what `make_step` does, part by part."""
    is_channels_last = point.memory_format == "channels_last"
    head = _HEAD.format(
        family=point.family,
        batch=point.batch,
        precision=point.precision,
        mode=point.mode,
        structure=json.dumps(dict(point.structure)),
        layout=", memory_format=torch.channels_last" if is_channels_last else "",
    )
    head += _CHANNELS_LAST if is_channels_last else ""
    return head + (_inference(point) if point.mode == "inference" else _training(point))


def _training(point: Point) -> str:
    scales = point.precision == "float16"
    lines = ("outputs = model(inputs)", "loss = workload.loss(outputs, targets)")
    return _TRAINING.format(
        optimizer=_OPTIMIZERS[point.optimizer],
        scaler='scaler = torch.amp.GradScaler("cuda")\n' if scales else "",
        forward=_inside(_autocast(point), *lines),
        backward="scaler.scale(loss).backward()" if scales else "loss.backward()",
        step="scaler.step(optimizer)\n    scaler.update()" if scales else "optimizer.step()",
    )


def _inference(point: Point) -> str:
    contexts = ["torch.no_grad()", *_autocast(point)]
    return _INFERENCE.format(forward=_inside(contexts, "outputs = model(inputs)"))


def _autocast(point: Point) -> list[str]:
    return [] if point.precision == "float32" else [f'torch.autocast("cuda", dtype=torch.{point.precision})']


def _inside(contexts: list[str], *lines: str) -> str:
    """Lines of the loop's body, one level deeper if there is a context for them."""
    if contexts:
        lines = (f"with {', '.join(contexts)}:", *(f"    {line}" for line in lines))
    return "\n".join(f"    {line}" for line in lines)
