"""What programs ask of values that nobody knows: the answer is the most they can need, or a refusal, never less."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from capturing import capture_script, peak_bytes

from tonnage.errors import CaptureError
from tonnage.program.virtual_gpu.values import FULL_MASK

LOSS = """
class Loss(nn.Module):
    def forward(self, scores):
        mask = scores > 0.5
        %s
        return loss

net, criterion = nn.Linear(256, 256).cuda(), Loss()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(5):
    scores = net(torch.randn(4096, 256, device="cuda"))
    criterion(scores).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SCORES_BYTES = 4096 * 256 * 4


@pytest.mark.parametrize(
    "lines",
    [
        "loss = scores.sum() * 0\n        if mask.any(): loss = loss + (scores[mask].exp() * 2).sum()",
        "if not mask.any(): return scores.sum() * 0\n        loss = (scores[mask].exp() * 2).sum()",
        "loss = (scores[mask].exp() * 2).sum() / max(1, mask.sum())",
        "count = mask.sum()\n        loss = scores.exp().mul(2).sum() / (count if count != 0 else 1)",
        "loss = scores.flatten().exp().topk(min(scores.numel(), 3 * mask.sum().item())).values.sum()",
        "loss = scores.flatten().exp().topk(int(mask.sum())).values.sum()",
        "count = mask.float().sum() or 1\n        loss = (scores.exp() * 2).sum() / count",
    ],
)
def test_a_selection_is_the_largest_possible(tmp_path: Path, lines: str) -> None:
    trace = capture_script(tmp_path, LOSS % lines)
    assert trace.origin.steps >= 4
    assert peak_bytes(trace) > 4 * SCORES_BYTES
    assert FULL_MASK in trace.origin.warnings


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("loss = scores.sum()\n        while mask.any(): scores, mask = scores * 0.5, scores > 0.5", "a loop goes on"),
        ("loss = scores.sum() if scores.mean() > 0 else scores.exp().sum()", "a branch inside the model"),
    ],
)
def test_what_has_no_bound_is_refused(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        capture_script(tmp_path, LOSS % lines)


@pytest.mark.parametrize(
    "check",
    [
        "if torch.isnan(big).any(): raise ValueError",
        "if (big != big).any(): big = torch.cat([big] * 9)",
        "if not torch.isfinite(big).all(): big = torch.cat([big] * 9)",
        "if torch.isnan(big).sum() > 0: big = torch.cat([big] * 9)",
    ],
)
def test_no_number_is_nan_however_many_there_are(tmp_path: Path, check: str) -> None:
    program = f"""
        net = nn.Linear(8, 8).cuda()
        big = torch.randn(3000, 3000, device="cuda")
        with torch.no_grad():
            net(torch.ones(4, 8).cuda())
        {check}
    """
    assert peak_bytes(capture_script(tmp_path, program)) < 4 * 3000 * 3000 * 4


def test_what_an_unknown_mask_selects_is_known(tmp_path: Path) -> None:
    """Greedy suppression of boxes: the order is a guess, and every overlap is kept or dropped by an unknown mask."""
    trace = capture_script(
        tmp_path,
        """
        net = nn.Linear(128, 128).cuda()
        with torch.no_grad():
            boxes = net(torch.randn(200, 128, device="cuda"))
            order, kept = boxes[:, 0].argsort(descending=True), []
            while order.numel() > 1:
                kept.append(order[0].item())
                far = (boxes[order[1:]] - boxes[kept[-1]]).abs().sum(1) > 1
                order = order[1:][far]
            assert len(kept) == 199
        """,
    )
    assert FULL_MASK in trace.origin.warnings


VALUES = """
net = nn.Linear(8, 8).cuda()
with torch.no_grad():
    net(torch.ones(4, 8).cuda())
%s
"""


@pytest.mark.parametrize(
    "lines",
    [
        # lists and arrays as indices
        "t = torch.arange(9).cuda(); assert t[[1, 2]].tolist() == [1, 2] and t[[1, 2]].sum().item() == 3",
        "t = torch.zeros(4, dtype=torch.long).cuda(); t[[0, 3]] = 7; assert t.tolist() == [7, 0, 0, 7]",
        # masks stay known when they become numbers
        "m = (torch.arange(9000) % 3 == 0).cuda(); assert m.float().sum().item() == 3000",
        # data of any size may be compared
        "x = torch.ones(300, 300); x[100:] = -1; y = x.cuda(); assert (y > 0).sum().item() == 30000",
        "x = torch.ones(300, 300); y = x.cuda(); x[0] = -1; y.mul_(2); n = (y > 0).sum()",
        # random numbers on the host are random, and as many as wanted
        "x = torch.rand(600, 700); assert 0.1 < (x < 0.15).float().mean() < 0.2 and x.shape == (600, 700)",
        # zeros are zeros until they are written to
        "z = torch.zeros_like(torch.randn(300, 300).cuda()); assert z.sum().item() == 0; z[0, 0] = 3; assert z.sum() == 3",
        # what was assumed is forgotten when something known takes its place
        "n = (torch.randn(300, 300, device='cuda') > 0).sum(); n.fill_(3); assert n.item() == 3",
        "assert torch.tensor([1.0], device='meta').device.type == 'meta'",
        "assert len(torch.arange(torch.tensor(6.0).cuda(), device='cuda')) == 6",
        "p = [t.untyped_storage().data_ptr() for t in (net.weight, net.bias)]; assert len(set(p)) == 2 and all(p)",
        "m = torch.jit.script(net); torch.jit.save(m, 'm.pt'); torch.jit.load('m.pt')(torch.ones(2, 8).cuda())",
        "torch.cuda.random.set_rng_state(torch.cuda.random.get_rng_state())",
    ],
)
def test_values_are_what_they_are_on_a_gpu(tmp_path: Path, lines: str) -> None:
    assert not capture_script(tmp_path, VALUES % lines).origin.warnings
