"""Sparse gradients: what they take, and that following them takes little of the host."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from capturing import calls, capture_script, live_bytes, peak_bytes

from tonnage.program.trace import Category, Trace

ROWS, WIDTH, IDS = 4_000_000, 64, 512 * 20  # a table of 977 MiB
ENTRY_BYTES = 4 * WIDTH
PLACE_BYTES = 8
PROGRAM = """
    import re
    from pathlib import Path
    table = nn.Embedding({rows}, {width}, sparse=True).cuda()
    optimizer = {optimizer}
    for step in range(6):
        for part in range({parts}):
            ids = torch.randint(0, {rows}, (512, 20)).cuda()
            {loss}.backward()
        optimizer.step()
        optimizer.zero_grad({zero})
        # Not ru_maxrss, which has that of the process that started this one in it.
        peak_kib = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
        assert peak_kib < 1 << 20, "more than 1 GiB of the host was used"
"""


def train(
    folder: Path, optimizer: str, *, loss: str = "table(ids).mul(2).sum()", parts: int = 1, zero: str = ""
) -> Trace:
    text = PROGRAM.format(rows=ROWS, width=WIDTH, optimizer=optimizer, loss=loss, parts=parts, zero=zero)
    return capture_script(folder, text)


SGD = "torch.optim.SGD(table.parameters(), lr=0.1)"


def test_a_sparse_gradient_is_as_large_as_its_entries(tmp_path: Path) -> None:
    trace = train(tmp_path, SGD)
    assert live_bytes(trace)[Category.PARAMETERS] == ROWS * ENTRY_BYTES
    # The places are those of the batch, which autograd keeps as they are.
    assert live_bytes(trace)[Category.GRADIENTS] == IDS * ENTRY_BYTES
    assert live_bytes(trace)[Category.INPUTS] == IDS * PLACE_BYTES
    assert calls(trace, "aten::clone") == 0
    assert calls(trace, "aten::index_add_") == trace.origin.steps


def test_sparse_adam_makes_no_table_on_the_host(tmp_path: Path) -> None:
    trace = train(tmp_path, "torch.optim.SparseAdam(table.parameters())")
    assert not trace.origin.warnings
    assert live_bytes(trace)[Category.OPTIMIZER_STATE] == 2 * ROWS * ENTRY_BYTES
    # Entries of the gradient, merged ones, two old states and their updates; no further table.
    assert 6 * IDS * ENTRY_BYTES < peak_bytes(trace) - 3 * ROWS * ENTRY_BYTES < 9 * IDS * ENTRY_BYTES


@pytest.mark.parametrize(
    ("loss", "parts"), [("(table(ids) + table(ids.flip(0))).sum()", 1), ("table(ids).mul(2).sum()", 2)]
)
def test_sparse_gradients_that_are_added_are_put_one_after_the_other(tmp_path: Path, loss: str, parts: int) -> None:
    trace = train(tmp_path, SGD, loss=loss, parts=parts)
    assert live_bytes(trace)[Category.GRADIENTS] == 2 * IDS * (ENTRY_BYTES + PLACE_BYTES)


def test_a_sparse_gradient_set_to_zero_has_no_entries_left(tmp_path: Path) -> None:
    trace = train(tmp_path, SGD, zero="set_to_none=False")
    assert live_bytes(trace)[Category.GRADIENTS] == IDS * (ENTRY_BYTES + PLACE_BYTES)


def test_momentum_of_sparse_gradients_grows_with_every_step(tmp_path: Path) -> None:
    trace = train(tmp_path, "torch.optim.SGD(table.parameters(), lr=0.1, momentum=0.9)")
    assert live_bytes(trace)[Category.OPTIMIZER_STATE] == trace.origin.steps * IDS * (ENTRY_BYTES + PLACE_BYTES)
