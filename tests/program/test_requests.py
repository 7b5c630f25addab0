"""The order in which operators ask for memory, as allocator histories of an H200 show it (benchmarks/accuracy)."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from capturing import capture_script

from tonnage.estimate.memory import Requests, collect_requests
from tonnage.hardware import find_gpu


def requests_of(folder: Path, program: str) -> Requests:
    return collect_requests(capture_script(folder, program), find_gpu("H200"))


def sizes_around(requests: Requests, name: str) -> list[int]:
    """Allocations of one operator in order, and with a minus what was freed of them before its last allocation."""
    trace = requests.trace
    blocks = [
        block
        for block in range(len(requests.sizes))
        if trace.operators[trace.call_operator[requests.call_of(block)]].name == name
    ]
    entries = [item for item in requests.order if (item if item >= 0 else ~item) in blocks]
    last = max(place for place, item in enumerate(entries) if item >= 0)
    return [requests.sizes[item] if item >= 0 else -requests.sizes[~item] for item in entries[: last + 1]]


def test_a_recurrent_network_asks_for_its_reserve_while_it_holds_its_workspace(tmp_path: Path) -> None:
    requests = requests_of(
        tmp_path,
        """
        network = nn.LSTM(512, 512).cuda()
        network(torch.randn(16, 64, 512, device="cuda"))[0].sum().backward()
        """,
    )
    output, *_, workspace, reserve = (size for size in sizes_around(requests, "aten::_cudnn_rnn") if size > 512)
    assert output == 16 * 64 * 512 * 4
    assert workspace > 8 << 20
    assert reserve == 16 * 64 * 512 * 5 * 4 + 256


def test_a_norm_copies_what_it_gets_before_it_returns_anything(tmp_path: Path) -> None:
    requests = requests_of(
        tmp_path,
        """
        norm = nn.LayerNorm(512).cuda()
        norm(torch.randn(4, 512, 1024, device="cuda").transpose(1, 2)).sum().backward()
        """,
    )
    copy, result, *_ = sizes_around(requests, "aten::native_layer_norm")
    assert copy == result == 4 * 1024 * 512 * 4


def test_a_transposed_convolution_copies_a_strided_gradient_once_for_both_gradients(tmp_path: Path) -> None:
    program = """
        up = nn.ConvTranspose2d(64, 64, 2, 2, bias=False).cuda()
        plain = nn.Conv2d(64, 64, 3, padding=1, bias=False).cuda()
        image = torch.randn(8, 64, 16, 16, device="cuda", requires_grad=True)
        torch.cat([%s(image), %s(image)], 1).square().sum().backward()
    """
    copies = {}
    for layer in ("up", "plain"):
        trace = requests_of(tmp_path / layer, program % (layer, layer)).trace
        names = [trace.operators[index].name for index in trace.call_operator.tolist()]
        copies[layer] = names.count("aten::clone")
    # Both gradients are parts of one tensor. A plain convolution copies its part again for the weights; what it copies
    # for the input counts as its own temporary memory.
    assert copies == {"up": 2, "plain": 2}
