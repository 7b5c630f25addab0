"""Programs as people write them, captured whole. Expected bytes are sums that anybody can check by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
from capturing import bytes_in_use, calls, capture_script, peak_bytes, write_script

from tonnage.errors import CaptureError
from tonnage.estimate.estimator import estimate_trace
from tonnage.hardware import find_gpu
from tonnage.program.capture import CaptureOptions, capture
from tonnage.program.program import parse_program
from tonnage.program.trace import D2H, H2D, Category, Event, Phase, Trace
from tonnage.program.trace_file import dump_trace

pytest.importorskip("torch")

# Linear(256, 512) and Linear(512, 128), float32.
PARAMETERS = 4 * (256 * 512 + 512 + 512 * 128 + 128)
NETWORK = "model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 128)).cuda()\n"
ADAM = NETWORK + "optimizer = torch.optim.Adam(model.parameters())\n"


def bytes_of(trace: Trace, category: Category) -> list[int]:
    return sorted(trace.block_bytes[trace.block_category == category].tolist())


# -- a plain training loop ------------------------------------------------------------------------------------------------

PLAIN = """
    best = float("inf")
    for step in range(10 ** 9):
        x, y = torch.randn(64, 256, device="cuda"), torch.randint(0, 128, (64,), device="cuda")
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        del x, y, out
        if loss.item() != loss.item() or loss > 1e9:
            raise SystemExit("diverged")
        best = min(best, loss.item())
        print(f"{step:6d} {loss:.4f} {loss.item():8.3f} {float(loss)} {best}", loss, "%.2f" % loss.item())
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    text = "\n".join((ADAM, "if True:", PLAIN))
    return capture_script(tmp_path_factory.mktemp("plain"), text, steps=3)


def test_a_loop_that_would_run_for_days_is_followed_for_the_steps_asked_for(plain: Trace) -> None:
    assert (plain.origin.steps, plain.steps, plain.origin.mode) == (3, 3, "training")


def test_the_peak_of_a_training_step_is_the_sum_by_hand(plain: Trace) -> None:
    """In the optimizer: weights, gradients, two moments and the root of the second, the batch, the output, the loss."""
    batch = 64 * 256 * 4 + 64 * 8 + 64 * 128 * 4 + 4
    assert peak_bytes(plain) == 5 * PARAMETERS + batch


def test_memory_between_steps_is_weights_gradients_and_moments(plain: Trace) -> None:
    ends = [i for i, kind in enumerate(plain.event_kind.tolist()) if kind == Event.STEP]
    leftover = 64 * 256 * 4 + 64 * 8 + 64 * 128 * 4 + 4
    assert [bytes_in_use(plain)[end] for end in ends] == [4 * PARAMETERS + leftover] * 3


def test_blocks_are_known_by_what_they_are_for(plain: Trace) -> None:
    weights = sorted([256 * 512 * 4, 512 * 4, 512 * 128 * 4, 128 * 4])
    assert bytes_of(plain, Category.PARAMETERS) == weights
    assert bytes_of(plain, Category.OPTIMIZER_STATE) == sorted(2 * weights)
    assert bytes_of(plain, Category.GRADIENTS) == sorted(3 * weights)


def test_reading_losses_is_no_trouble_and_counted_as_copies(plain: Trace) -> None:
    assert plain.origin.warnings == ()
    assert plain.bytes_per_step(D2H) == 8 * 4 + 1  # eight looks at the loss, one at a comparison
    assert plain.bytes_per_step(H2D) == 0


def test_every_phase_of_a_training_step_is_seen(plain: Trace) -> None:
    assert {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER} <= {Phase(p) for p in plain.call_phase.tolist()}
    assert plain.origin.parameter_count * 4 == PARAMETERS


# -- a whole program that ends by itself ----------------------------------------------------------------------------------

WHOLE = """
    import os
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(40, 256), torch.randint(0, 128, (40,)))
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=4, pin_memory=True, persistent_workers=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for epoch in range(3):
        model.train()
        for number, (x, y) in enumerate(loader):
            x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
            loss = F.cross_entropy(model(x), y) / 2
            loss.backward()
            if (number + 1) % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()
        model.eval()
        right = 0
        with torch.no_grad():
            for x, y in DataLoader(data, batch_size=20):
                right += (model(x.cuda()).argmax(1) == y.cuda()).sum().item()
            whole = torch.empty(50_000_000, device="cuda")
        print(f"epoch {epoch}: {right / len(data):.1%}")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")
        assert os.path.exists("last.pt")
        del whole
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trace]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, capture_script(folder, "\n".join((ADAM, "if True:", WHOLE)), steps=2)


def test_what_follows_the_loop_belongs_to_the_trace(whole: tuple[Path, Trace]) -> None:
    assert peak_bytes(whole[1]) >= 200_000_000  # the evaluation's
    assert whole[1].origin.checkpoints >= 1


def test_a_checkpoint_is_measured_and_not_written(whole: tuple[Path, Trace]) -> None:
    folder, trace = whole
    moments, step_counts = 2 * PARAMETERS, 4 * 4
    assert trace.origin.storage_bytes == PARAMETERS + moments + step_counts
    assert [p.name for p in folder.iterdir()] == ["train.py"]


def test_accumulated_gradients_make_one_step_of_several_batches(whole: tuple[Path, Trace]) -> None:
    _, trace = whole
    assert trace.origin.steps == 2
    assert trace.bytes_per_step(H2D) == 2 * 8 * (256 * 4 + 8)


def test_a_data_loader_with_workers_and_pinned_memory_tells_the_batch(whole: tuple[Path, Trace]) -> None:
    assert whole[1].origin.batch == 8


# -- other shapes of loops ------------------------------------------------------------------------------------------------


def test_a_gan_with_two_optimizers_makes_one_step_of_both(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        """
        generator, critic = nn.Linear(16, 64).cuda(), nn.Linear(64, 1).cuda()
        first = torch.optim.Adam(generator.parameters(), betas=(0.5, 0.999))
        second = torch.optim.Adam(critic.parameters())
        target = torch.ones(8, 1, device="cuda")
        while True:
            real, noise = torch.randn(8, 64, device="cuda"), torch.randn(8, 16, device="cuda")
            second.zero_grad()
            fake = generator(noise)
            loss = F.binary_cross_entropy_with_logits(critic(real), target)
            loss = loss + F.binary_cross_entropy_with_logits(critic(fake.detach()), 1 - target)
            loss.backward()
            second.step()
            first.zero_grad()
            F.binary_cross_entropy_with_logits(critic(fake), target).backward()
            first.step()
        """,
    )
    assert trace.origin.steps == 4
    assert calls(trace, "aten::_foreach_addcdiv_") == 2 * 4


def test_an_update_written_by_hand_is_a_step(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        NETWORK
        + """
for step in range(10 ** 9):
    loss = model(torch.ones(8, 256, device="cuda")).square().mean()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
""",
    )
    assert (trace.origin.steps, trace.origin.mode) == (4, "training")
    assert bytes_of(trace, Category.OPTIMIZER_STATE) == []


def test_where_modules_take_turns_the_first_of_them_counts(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        NETWORK
        + """
criterion = nn.CrossEntropyLoss()
x, y = torch.randn(64, 256).cuda(), torch.zeros(64, dtype=torch.long).cuda()
with torch.no_grad():
    for _ in range(100):
        perplexity = criterion(model(x), y).exp()
""",
    )
    (_, *steps) = [list(group) for group in _calls_of_steps(trace)]
    assert steps
    assert all(step.count("aten::addmm") == 2 and step.count("aten::nll_loss_forward") == 1 for step in steps)


def _calls_of_steps(trace: Trace) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for kind, subject in zip(trace.event_kind.tolist(), trace.event_subject.tolist(), strict=True):
        if kind == Event.STEP:
            found.append([])
        elif kind == Event.CALL:
            found[-1].append(trace.operators[trace.call_operator[subject]].name)
    return found[:-1]


def test_gradients_are_clipped_as_lists(tmp_path: Path) -> None:
    """As on a real GPU: not tensor by tensor."""
    trace = capture_script(
        tmp_path,
        ADAM
        + """
for _ in range(10):
    model(torch.randn(64, 256, device="cuda")).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
""",
    )
    names = [trace.operators[trace.call_operator[call]].name for call in trace.last_step_calls()]
    assert names.count("aten::_foreach_norm") == 1
    assert names.count("aten::linalg_vector_norm") == 1  # of the norms
    assert "aten::mul_" not in names


def test_an_inference_loop_is_a_step_a_call(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        NETWORK
        + """
model.eval()
with torch.inference_mode():
    while True:
        x = torch.randn(64, 256).cuda()
        scores = model(x).softmax(-1).cpu().tolist()
        del x
""",
    )
    assert (trace.origin.steps, trace.origin.mode) == (4, "inference")
    hidden, output = 64 * 512 * 4, 64 * 128 * 4
    assert peak_bytes(trace) == PARAMETERS + 64 * 256 * 4 + max(2 * hidden, hidden + output)
    assert trace.bytes_per_step(D2H) == output


def test_batches_may_come_from_another_thread(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        ADAM
        + """
import queue, threading
batches = queue.Queue(maxsize=2)

def load():
    while True:
        batches.put((torch.randn(8, 256).pin_memory().cuda(non_blocking=True), torch.randint(0, 128, (8,)).cuda()))

threading.Thread(target=load, daemon=True).start()
for step in range(10 ** 9):
    x, y = batches.get()
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
""",
    )
    assert trace.origin.steps == 4
    ready = 4 * (8 * 256 * 4 + 8 * 8)  # two in the queue, one waiting to enter it, one in use
    assert 5 * PARAMETERS < peak_bytes(trace) <= 5 * PARAMETERS + ready + 8 * 256 * 4 + 4


def test_a_function_that_returns_a_model_and_its_inputs_is_trained(tmp_path: Path) -> None:
    path = write_script(
        tmp_path,
        """
        def make(batch_size=16):
            return {
                "model": nn.Linear(32, 8), "inputs": torch.randn(batch_size, 32),
                "loss": lambda out: out.square().mean(), "optimizer": torch.optim.SGD,
            }
        """,
        "nets.py",
    )
    trace = capture(parse_program(f"{path}:make"), CaptureOptions(batch=64))
    assert (trace.origin.steps, trace.origin.mode, trace.origin.batch) == (4, "training", 64)
    assert trace.bytes_per_step(H2D) == 0
    assert 64 * 8 * 4 in trace.block_bytes.tolist()


def test_options_reach_the_script_and_its_batch_can_be_changed(tmp_path: Path) -> None:
    text = """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--width", type=int, default=8)
        parser.add_argument("--batch-size", type=int, default=4)
        args = parser.parse_args()
        model = nn.Linear(args.width, args.width, bias=False).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(10 ** 9):
            optimizer.zero_grad()
            model(torch.ones(args.batch_size, args.width, device="cuda")).sum().backward()
            optimizer.step()
        """
    trace = capture_script(tmp_path, text, "--width", "96", batch=32)
    assert trace.origin.program.endswith("train.py --width 96")
    assert trace.origin.batch == 32
    assert bytes_of(trace, Category.PARAMETERS) == [96 * 96 * 4]
    assert 32 * 96 * 4 in trace.block_bytes.tolist()


# -- what models do -------------------------------------------------------------------------------------------------------


def test_shared_weights_count_once_and_a_copy_for_averaging_counts_again(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        """
        import copy

        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = nn.Embedding(1000, 64)
                self.head = nn.Linear(64, 1000, bias=False)
                self.head.weight = self.embedding.weight

            def forward(self, tokens):
                return self.head(self.embedding(tokens))

        model = Tied().cuda()
        average = copy.deepcopy(model).requires_grad_(False)
        assert average.head.weight is average.embedding.weight
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        unseen = torch.empty(10 ** 9, device="meta")
        for _ in range(10 ** 9):
            tokens = torch.randint(0, 1000, (2, 16), device="cuda")
            optimizer.zero_grad()
            F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
            optimizer.step()
            with torch.no_grad():
                for mean, value in zip(average.parameters(), model.parameters()):
                    mean.mul_(0.99).add_(value, alpha=0.01)
        """,
    )
    weights = 1000 * 64 * 4
    assert trace.origin.parameter_count == 64_000
    assert bytes_of(trace, Category.PARAMETERS) == [weights]
    setup = trace.event_kind.tolist().index(Event.CALL)
    assert trace.block_bytes.tolist().count(weights) >= 2
    assert max(trace.block_bytes.tolist()) < 10**9  # a tensor on meta takes no memory
    assert bytes_in_use(trace)[setup] <= 2 * weights


def test_channels_last_is_recorded_and_autocast_keeps_half_of_the_bytes(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        """
        model = nn.Sequential(nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16 * 16, 10)).cuda()
        model = model.to(memory_format=torch.channels_last)
        optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cuda")
        for _ in range(10 ** 9):
            x = torch.randn(4, 8, 16, 16, device="cuda").to(memory_format=torch.channels_last)
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).float().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        """,
    )
    (convolution,) = {op for op in trace.operators if op.name == "aten::convolution"}
    (result,) = convolution.outputs
    assert (result.shape, result.dtype, result.layout) == ((4, 32, 16, 16), "float16", "channels_last")
    assert trace.origin.steps == 4
    assert trace.origin.warnings == ()


def test_a_compiled_model_is_followed_in_eager_mode_with_a_warning(tmp_path: Path) -> None:
    trace = capture_script(
        tmp_path,
        ADAM
        + """
model = torch.compile(model, mode="max-autotune")

@torch.compile
def loss_of(out):
    return out.square().mean()

for _ in range(10 ** 9):
    optimizer.zero_grad()
    loss_of(model(torch.ones(8, 256, device="cuda"))).backward()
    optimizer.step()
""",
    )
    (warning,) = trace.origin.warnings
    assert warning.startswith("torch.compile was ignored")
    assert peak_bytes(trace) >= 5 * PARAMETERS


def test_a_capture_can_be_repeated_to_the_byte(plain: Trace) -> None:
    again = capture_script(Path(plain.origin.program).parent, "\n".join((ADAM, "if True:", PLAIN)), steps=3)
    assert dump_trace(replace(again, origin=plain.origin)) == dump_trace(plain)


# -- what cannot be followed ----------------------------------------------------------------------------------------------


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    path = write_script(tmp_path, "x = torch.ones(3).cuda()\nimport time\ntime.sleep(1000)\n")
    with pytest.raises(CaptureError, match="did not finish 4 steps within 4 s"):
        capture(parse_program(str(path)), CaptureOptions(timeout_seconds=4))


def test_a_program_that_is_killed_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    path = write_script(tmp_path, "import os\nprint('last words', flush=True)\nos.kill(os.getpid(), 9)\n")
    with pytest.raises(CaptureError, match="died without a word: last words"):
        capture(parse_program(str(path)))


def test_an_estimate_of_a_capture_adds_up(plain: Trace) -> None:
    (estimate,) = estimate_trace(plain, [find_gpu("H200")]).estimates
    inside = sum(size for name, size in estimate.categories.items() if name != "context")
    assert inside == estimate.peak_allocated_bytes.value
    assert estimate.categories["optimizer_state"] == sum(
        -(-b // 512) * 512 for b in bytes_of(plain, Category.OPTIMIZER_STATE)
    )
