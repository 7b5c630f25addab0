"""The head of the page: the network, the cluster, and what is the best for each target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

from tonnage.estimate.page_text import duration, escape
from tonnage.split.devices import End, Fabric
from tonnage.split.distribution import Distribution
from tonnage.split.metrics import seconds_on
from tonnage.split.network import Network
from tonnage.split.page_words import Numbered, count_words, sentence, share_words, value_words
from tonnage.split.pool import Pool
from tonnage.split.targets import Target
from tonnage.units import format_bytes


def summarize(pool: Pool, distributions: Sequence[Distribution]) -> str:
    operations = count_words(len(pool.network.operations), "operation")
    devices = count_words(len(pool.fabric.devices), "device")
    text = f"{operations}{', trained' if pool.network.is_training else ''} over {devices}."
    return f"{text} {sentence(pool.network, distributions[0])}" if distributions else text


def facts(pool: Pool) -> str:
    network, fabric = pool.network, pool.fabric
    memory = sum(device.memory_bytes for device in fabric.devices)
    held = sum(network.weight_bytes.values()) or sum(each.weight_bytes for each in network.operations)
    alone = min((_alone(network, fabric, place) for place in range(len(fabric.devices))), default=0.0)
    step = f"{count_words(pool.training.micro_batches, 'micro-batch')} a step, " if pool.training else ""
    items = {
        "network": f"{'training' if network.is_training else 'inference'} "
        f"<small>{step}{count_words(len(network.edges), 'connection')}</small>",
        "weights": f"{format_bytes(held)} <small>{_share_of_memory(held, memory)}</small>",
        "on the fastest device alone": duration(alone) if alone < inf else "cannot run",
        "devices": _kinds(fabric),
        "links": _links(fabric),
    }
    if fabric.inputs is not None:
        items["inputs come from"] = _end(fabric.inputs, sum(each.nbytes for each in network.inputs))
    if fabric.outputs is not None:
        made = sum(network.operations[position].output_bytes for position in network.outputs)
        items["outputs end at"] = _end(fabric.outputs, made)
    return '<dl class="facts">' + "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in items.items()) + "</dl>"


def _end(end: End, nbytes: int) -> str:
    return f"{escape(end.node)} <small>{format_bytes(nbytes) if nbytes else 'of unknown size'}</small>"


def _alone(network: Network, fabric: Fabric, place: int) -> float:
    device = fabric.devices[place]
    forward = sum(seconds_on(each, device) for each in network.operations)
    backward = sum(seconds_on(each, device, backward=True) for each in network.operations if network.is_training)
    return forward + backward


def _share_of_memory(held: float, memory: float) -> str:
    return f"{share_words(held / memory)} of all memory" if 0 < memory < inf else ""


def _kinds(fabric: Fabric) -> str:
    """`2 × H200, 3 × cpu at speed 2`."""
    counts = Counter((device.kind, device.speed) for device in fabric.devices)
    words = [
        f'<span class="kind">{count} × {escape(kind)}'
        + (f" <small>at speed {speed:g}</small></span>" if speed != 1 else "</span>")
        for (kind, speed), count in counts.items()
    ]
    nodes = len({device.node for device in fabric.devices})
    return f"{', '.join(words)} <small>on {count_words(nodes, 'node')}</small>"


def _links(fabric: Fabric) -> str:
    rates = sorted({lane.bytes_second for lane in fabric.lanes})
    if not rates:
        return "none"
    span = f"{8 * rates[0] / 1e9:.3g}"
    return f"{span if len(rates) == 1 else f'{span} to {8 * rates[-1] / 1e9:.3g}'} Gbit/s"


def targets_section(network: Network, best: Numbered) -> str:
    if not best:
        return ""
    rows = "".join(_target_row(network, number, each) for number, each in best)
    return (
        '<section aria-labelledby="targets"><h2 id="targets">The best for each target</h2><div class="scroll">'
        '<table class="plain targets"><thead><tr><th scope="col">target</th><th scope="col">value</th>'
        '<th scope="col">bound</th><th scope="col">gap</th><th scope="col">devices</th><th scope="col" class="text">'
        '<span class="unseen">in words</span></th><th scope="col"><span class="unseen">show</span></th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _target_row(network: Network, number: int, each: Distribution) -> str:
    target = Target(each.target)
    has_bound = each.bound > 0
    return (
        f'<tr data-view="{number}"><th scope="row">{target.value}</th><td><b>{value_words(target, each.value)}</b></td>'
        f"<td>{value_words(target, each.bound) if has_bound else '–'}</td>"
        f"<td>{'optimal' if each.proven_optimal else share_words(each.gap) if has_bound else '–'}</td>"
        f"<td>{len(each.devices)}</td><td class='text path'>{sentence(network, each)}</td>"
        f'<td><button type="button" class="scripted" data-show="{number}" hidden>show</button></td></tr>'
    )
