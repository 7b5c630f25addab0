"""Which calls are turns of a loop, how long a loop is followed, and what is said when it is cut."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from capturing import capture_script, peak_bytes

MIB = 1 << 20


def test_a_growing_cache_is_followed_to_its_end(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        """
        net = nn.Linear(256, 256).cuda()
        with torch.no_grad():
            net(torch.randn(65536, 256, device="cuda"))  # the prompt needs more than many tokens
            cache = []
            for token in range(100):
                cache.append(net(torch.randn(2048, 256, device="cuda")))
        """,
    )
    assert peak_bytes(trace) >= 100 * 2 * MIB
    assert not trace.origin.warnings


def test_a_model_that_waits_for_another_is_waited_for(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        """
        denoiser, decoder = nn.Linear(64, 64).cuda(), nn.Linear(64, 1 << 20).cuda()
        latent = torch.randn(16, 64, device="cuda")
        with torch.no_grad():
            for _ in range(40):
                latent = denoiser(latent)
            decoder(latent)
        """,
    )
    assert peak_bytes(trace) >= 64 * 4 * MIB + 16 * 4 * MIB


def test_a_part_that_is_never_called_is_not_waited_for(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.head_for_training = nn.Linear(64, 64), nn.Linear(64, 64)

            def forward(self, x):
                return self.used(x)

        net = Net().cuda()
        with torch.no_grad():
            while True:
                net(torch.randn(16, 64, device="cuda"))
        """,
    )
    assert trace.origin.steps == 4


def test_modules_on_the_host_and_weights_made_by_others_are_no_turns(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        """
        class Flip(nn.Module):
            def forward(self, image):
                return image.flip(-1)

        flip = Flip()
        with torch.no_grad():
            images = [flip(torch.randn(64)) for _ in range(50)]
            net = nn.utils.parametrizations.weight_norm(nn.Linear(64, 64))
            norms = [net.weight.norm() for _ in range(50)]
            net = net.cuda()
            for image in images[:3]:
                net(image.cuda())
        """,
    )
    assert trace.origin.steps == 3


def test_results_that_are_collected_are_collected_from_all_batches(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        """
        net = nn.Linear(64, 512).cuda()
        loader = torch.utils.data.DataLoader(torch.randn(4096, 64), batch_size=64)
        with torch.no_grad():
            features = torch.cat([net(batch.cuda()) for batch in loader])
            similar = features @ features.T
        """,
    )
    assert peak_bytes(trace) >= 4096 * 4096 * 4


def test_memory_that_grows_with_every_step_is_said_to_grow(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        """
        net, kept = nn.Linear(512, 512).cuda(), []
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(1000):
            kept.append(net(torch.randn(1024, 512, device="cuda")))
            kept[-1].sum().backward()
            optimizer.step()
        """,
    )
    assert any("keeps 2.00 MiB more with every step" in warning for warning in trace.origin.warnings)


def test_a_failure_after_the_loop_is_told(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        """
        net = nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(6):
            net(torch.randn(4, 8, device="cuda")).sum().backward()
            optimizer.step()
        raise RuntimeError("no report today")
        """,
    )
    assert any("no report today" in warning and "train.py:" in warning for warning in trace.origin.warnings)


@pytest.mark.parametrize(
    "lines",
    [
        "matrix = (torch.rand(400, 400) < 0.1).float().to_sparse_csr().cuda(); loss = (matrix @ net(x)).sum()",
        "parts = torch.nested.nested_tensor([x[:100], x[:200]], layout=torch.jagged); loss = net(parts).values().sum()",
    ],
)
def test_tensors_of_other_kinds_train(tmp_path: Path, lines: str) -> None:
    trace = capture_script(
        tmp_path,
        f"""
        net = nn.Linear(64, 64).cuda()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(6):
            x = torch.randn(400, 64, device="cuda")
            {lines}
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    )
    assert trace.origin.steps >= 4


FED = """
    from torch.utils.data import DataLoader, TensorDataset
    net = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.zeros(16 * {batches}, 64)), batch_size=16)
    def train(x):
        optimizer.zero_grad()
        net(x.cuda()).sum().backward()
        optimizer.step()
"""
AFTER = """
    after = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
"""


@pytest.mark.parametrize(
    "loop",
    [
        "    for step in range({count}): train(next(batches)[0])",
        "    for step in range({count}):\n        (x,) = batches.__next__()\n        train(x)",
        "    train(*next(batches))\n    for step in range({count} - 1):\n        train(\n            *next(batches))",
        "    def draw(): return next(batches)[0]\n    for step in range({count}): train(draw())",
    ],
)
@pytest.mark.parametrize(("count", "sees_rest"), [(8, True), (90, False)])
def test_a_counted_loop_gets_the_batches_it_asks_for(tmp_path: Path, loop: str, count: int, sees_rest: bool) -> None:
    text = FED.format(batches=100) + "    batches = iter(loader)\n" + loop.format(count=count) + AFTER
    trace = capture_script(tmp_path, text)
    assert not trace.origin.warnings
    assert trace.origin.steps == (8 if sees_rest else 4)
    assert trace.origin.epoch_steps == 100
    assert (peak_bytes(trace) >= 64 * MIB) == sees_rest


def test_a_counted_loop_that_asks_for_more_batches_than_there_are_fails_as_it_would(tmp_path: Path) -> None:
    text = FED.format(batches=6) + "    batches = iter(loader)\n    for step in range(50): train(next(batches)[0])\n"
    trace = capture_script(tmp_path, text)
    assert any("after 6 steps the program failed" in warning for warning in trace.origin.warnings)


@pytest.mark.parametrize(
    "loop",
    [
        "    for x, in loader: train(x)",
        "    for step, (x,) in enumerate(loader): train(x)",
        "    batches = iter(loader)\n    while (batch := next(batches, None)) is not None: train(*batch)",
        "    batches = iter(loader)\n    while 1:\n        try: x, = next(batches)\n        except: break\n"
        "        train(x)",
        "    batches = iter(loader)\n    def draw(): return next(batches)\n    try:\n        while True: train(*draw())\n"
        "    except StopIteration: pass",
        "    class Source:\n        batches = iter(loader)\n        def __iter__(self): return self\n"
        "        def __next__(self): return next(self.batches)\n    for x, in Source(): train(x)",
        "    def source():\n        yield from loader\n    for x, in source(): train(x)",
        "    for x, in next(iter([loader])): train(x)",
    ],
)
def test_a_loop_that_notices_the_end_of_the_data_is_ended_early(tmp_path: Path, loop: str) -> None:
    trace = capture_script(tmp_path, FED.format(batches=10**4) + loop + AFTER)
    assert not trace.origin.warnings
    assert trace.origin.steps == 4
    assert peak_bytes(trace) >= 64 * MIB
