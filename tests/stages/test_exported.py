"""What a program's `build` may return, and what is said when it cannot be exported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from networks import Odd, Residual

from tonnage.errors import CaptureError, UsageError
from tonnage.program.exported import export_module, export_program, kept_together
from tonnage.program.program import parse_program

MODULE = "import torch\nfrom torch import nn\n"


def program(folder: Path, body: str, name: str = "build") -> object:
    (folder / "network.py").write_text(MODULE + body)
    return parse_program(f"{folder / 'network.py'}:{name}")


@pytest.mark.parametrize(
    "returned",
    [
        "nn.Linear(4, 2), torch.randn(3, 4)",
        "nn.Linear(4, 2), (torch.randn(3, 4),)",
        "nn.Linear(4, 2), {'input': torch.randn(3, 4)}",
        "{'model': nn.Linear(4, 2), 'inputs': torch.randn(3, 4)}",
    ],
)
def test_a_module_and_its_inputs_are_exported(tmp_path: Path, returned: str) -> None:
    network = export_program(program(tmp_path, f"def build(): return {returned}"))
    assert [node.name for node in network.module.graph.nodes if node.op == "call_function"] == ["linear"]


def test_a_module_may_bring_its_example(tmp_path: Path) -> None:
    body = "def build():\n    m = nn.Linear(4, 2)\n    m.example_inputs = (torch.randn(3, 4),)\n    return m\n"
    assert export_program(program(tmp_path, body)).arguments[0].shape == (3, 4)


def test_a_batch_size_reaches_the_function(tmp_path: Path) -> None:
    body = "def build(batch_size=2): return nn.Linear(4, 2), torch.randn(batch_size, 4)"
    assert export_program(program(tmp_path, body), batch=7).arguments[0].shape == (7, 4)


def test_loading_a_program_leaves_the_path_as_it_was(tmp_path: Path) -> None:
    before = list(sys.path)
    export_program(program(tmp_path, "def build(): return nn.Linear(4, 2), torch.randn(3, 4)"))
    assert sys.path == before


def test_training_descends_on_the_loss_that_is_named(tmp_path: Path) -> None:
    body = (
        "def build(): return {'model': nn.Linear(4, 2), 'inputs': torch.randn(3, 4), "
        "'loss': lambda out: out.square().mean()}"
    )
    network = export_program(program(tmp_path, body), training=True)
    assert network.loss == "mean"
    assert "weight" in dict(network.module.named_parameters())  # names are the user's own


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("def build(): return 3", "returned int, not a module and its inputs"),
        ("def build(): raise ValueError('no data here')", "ValueError: no data here"),
        ("def other(): pass", "has no function build"),
        (
            "class M(nn.Module):\n    def forward(self, x):\n        return x if x.sum() > 0 else -x\n"
            "def build(): return M(), torch.randn(3)",
            "cannot be exported",
        ),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(tmp_path: Path, body: str, sentence: str) -> None:
    with pytest.raises(CaptureError, match=sentence) as caught:
        export_program(program(tmp_path, body))
    assert "\n" not in caught.value.message


def test_training_without_a_loss_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="returns no loss"):
        export_program(program(tmp_path, "def build(): return nn.Linear(4, 2), torch.randn(3, 4)"), training=True)


def test_a_script_is_no_network(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("pass")
    with pytest.raises(UsageError, match="names no function"):
        export_program(parse_program(str(tmp_path / "train.py")))


def test_in_place_operators_stay_with_what_they_change_and_no_more() -> None:
    groups = kept_together(export_module(Residual(), torch.randn(2, 3, 8, 8)).module)
    assert frozenset({"batch_norm", "relu_"}) in groups
    assert frozenset({"add_", "batch_norm_1", "relu__1"}) in groups
    assert not any("conv2d" in name for group in groups for name in group)


def test_parts_stay_with_the_whole_and_readers_with_a_buffer_that_changes() -> None:
    groups = kept_together(export_module(Odd(), torch.randn(6, 8)).module)
    assert frozenset({"getitem", "getitem_1", "split"}) in groups
    assert any({"add_", "mul_1"} <= group for group in groups)
