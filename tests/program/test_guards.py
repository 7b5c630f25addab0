"""Checks that a program makes of its own numbers pass; decisions that change what it computes are refused."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from capturing import capture_script, peak_bytes

from tonnage.errors import CaptureError
from tonnage.program.virtual_gpu.guards import passing

MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(128, 128)

    def forward(self, x):
        %s
        return self.layer(x)

net = Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(5):
    net(torch.randn(512, 128, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "check",
    [
        "assert (x != 3).any(), 'all the same'",
        "assert not (x > 1e9).any()",
        "assert torch.allclose(x, x + 0.0)",
        "if x.min() < -1e9: raise ValueError('out of range')",
        "if not (x < 1e9).all(): raise ValueError('out of range')",
        "if x.abs().max() > 100: print('large values')",
    ],
)
def test_checks_inside_the_model_pass(tmp_path: Path, check: str) -> None:
    assert peak_bytes(capture_script(tmp_path, MODEL % check)) > 512 * 128 * 4


def test_a_decision_inside_the_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"train\.py:\d+.*branch inside the model depends on values"):
        capture_script(tmp_path, MODEL % "if x.mean() > 0: x = torch.cat([x, x])")


def test_a_check_of_known_values_can_fail(tmp_path: Path) -> None:
    program = """
lengths = torch.tensor([3, 9], device="cuda")
assert lengths.max() <= 8, "too long"
"""
    with pytest.raises(CaptureError, match="too long"):
        capture_script(tmp_path, program)


def test_only_conditions_of_checks_count() -> None:
    def outcomes() -> list[bool | None]:
        asked: list[bool | None] = []

        def ask(answer: bool) -> bool:
            asked.append(passing(sys._getframe(1)))
            return answer

        assert ask(True)
        assert not ask(False)
        if ask(False):
            raise ValueError
        if not ask(True):
            pass
        if ask(True):
            asked.append(None)
        if ask(False):
            pass
        else:
            asked.append(None)
        ask(True)
        return asked

    assert outcomes() == [True, False, False, True, None, None, None, None, None]
