"""What a Trace notes about the host: views, modules, its own operators, pinned memory, the length of an epoch."""

from pathlib import Path

import pytest
from capturing import capture_script

from tonnage.program.trace import H2D, Operator, Trace

pytestmark = pytest.mark.slow
NET = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(64, 32), nn.Linear(32, 8)
        def forward(self, x):
            return self.second(self.first(x).view(-1, 4, 8).transpose(1, 2).reshape(-1, 32))
    model = Net().cuda()
    x = torch.randn(16, 64, device="cuda")
"""
LOADER = """
    from torch.utils.data import DataLoader, TensorDataset
    model = nn.Linear(64, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.zeros(330, 64)), batch_size=16, pin_memory={pinned})
    for epoch in range(3):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x.to("cuda", non_blocking={free})).sum().backward()
            optimizer.step()
"""


def batches(trace: Trace) -> list[Operator]:
    """Copies of a batch to the GPU."""
    return [op for op in trace.operators if op.name == H2D and op.inputs[0] and op.inputs[0].shape == (16, 64)]


def of_last_step(trace: Trace, column: str) -> int:
    return int(getattr(trace, f"call_{column}")[trace.last_step_calls()].sum())


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    text = NET + "    for step in range(10 ** 9):\n        model(x)\n"
    return capture_script(tmp_path_factory.mktemp("plain"), text)


def test_views_are_counted(plain: Trace) -> None:
    assert of_last_step(plain, "views") >= 2


def test_entered_modules_are_counted(plain: Trace) -> None:
    assert of_last_step(plain, "entered") == 3  # the network and its two layers


def test_a_program_that_leaves_the_work_to_the_gpu_has_no_operators_of_the_host(plain: Trace) -> None:
    assert of_last_step(plain, "host_operators") == 0


def test_operators_of_the_host_are_counted_with_bytes_and_random_numbers(tmp_path: Path) -> None:
    loop = "    for step in range(10 ** 9):\n        y = torch.randn(4096, 64) * 2\n        model(x)\n"
    trace = capture_script(tmp_path, NET + loop)
    assert of_last_step(trace, "host_operators") == 2
    assert of_last_step(trace, "host_random") == 4096 * 64
    assert of_last_step(trace, "host_bytes") == 2 * 4096 * 64 * 4


@pytest.mark.parametrize("read", ["big.cpu()", "big.tolist()", "big.sum().item()", "big.sum() > 3", "host.copy_(big)"])
@pytest.mark.parametrize("rows", [64, 65])  # 4096 numbers are known to the virtual GPU, more of them are not
def test_reading_from_the_gpu_is_a_copy_and_no_work_of_the_host(
    tmp_path: Path, plain: Trace, rows: int, read: str
) -> None:
    tensors = f"    big, host = torch.randn({rows}, 64, device='cuda'), torch.zeros({rows}, 64)\n"
    loop = f"    for step in range(10 ** 9):\n        if {read} is None: pass\n        model(x)\n"
    trace = capture_script(tmp_path, NET + tensors + loop)
    assert of_last_step(trace, "host_operators") == 0
    assert of_last_step(trace, "views") == of_last_step(plain, "views")


@pytest.mark.parametrize(
    ("pinned", "free", "waits"), [(True, True, False), (True, False, True), (False, True, True), (False, False, True)]
)
def test_only_a_copy_from_pinned_memory_does_not_make_the_host_wait(
    tmp_path: Path, pinned: bool, free: bool, waits: bool
) -> None:
    trace = capture_script(tmp_path, LOADER.format(pinned=pinned, free=free))
    assert [(op.attributes["pinned"], op.attributes["waits"]) for op in batches(trace)] == [(pinned, waits)]


def test_the_data_loader_tells_how_long_an_epoch_is(tmp_path: Path) -> None:
    assert capture_script(tmp_path, LOADER.format(pinned=False, free=False)).origin.epoch_steps == 21


def test_without_a_data_loader_nobody_knows_how_long_an_epoch_is(plain: Trace) -> None:
    assert plain.origin.epoch_steps == 0
