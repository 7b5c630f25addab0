"""Ways to write a training loop that are not the textbook's. Each runs in a process of its own, as a user's script."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from capturing import NET_BYTES, capture_text, live_bytes, peak_bytes

from tonnage.errors import CaptureError
from tonnage.program.trace import Category

STEP = """
for x, y in batches():
    loss = F.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""

# Programs whose parameters, gradients and Adam's two moments must be counted to the byte, and nothing twice.
ADAM = {
    "data parallel": "model = nn.DataParallel(net().cuda(), device_ids=[0])",
    "moved by number": "model = net().to(0)",
    "accelerator": "model = net().to(torch.accelerator.current_accelerator())",
    "default tensor type": "torch.set_default_tensor_type('torch.cuda.FloatTensor'); model = net()",
    "traced": "model = torch.jit.trace(net().cuda(), torch.randn(8, 64).cuda())",
    "scripted": "model = torch.jit.script(net().cuda())",
    "fully sharded over one": """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
model = fully_shard(net().cuda())
""",
    "resumed": """
model = net().cuda()
torch.save({"model": model.state_dict(), "epoch": 3}, "best.pt")
saved = torch.load("best.pt", map_location=lambda storage, location: storage.cuda())
model.load_state_dict(saved["model"])
assert saved["epoch"] == 3 and saved["model"]["0.weight"].is_cuda
del saved
""",
}


@pytest.mark.parametrize("style", ADAM)
def test_parameters_gradients_and_moments_are_counted_once(tmp_path: Path, style: str) -> None:
    trace = capture_text(tmp_path, f"{ADAM[style]}\noptimizer = torch.optim.Adam(model.parameters()){STEP}")
    live = live_bytes(trace)
    assert trace.origin.mode == "training"
    assert trace.steps >= 4
    assert live[Category.PARAMETERS] == NET_BYTES
    assert live[Category.GRADIENTS] == NET_BYTES
    assert live[Category.OPTIMIZER_STATE] == 2 * NET_BYTES
    assert peak_bytes(trace) < 6 * NET_BYTES


# -- several processes, of which one is followed --------------------------------------------------------------------------

LARGE = """
import os, torch.distributed as dist
def large():
    return nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(12)]).cuda()
"""
LARGE_STEP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.randn(4, 1024).cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
"""
LARGE_BYTES = 12 * 4 * (1024 * 1024 + 1024)
WRAP = "model = nn.parallel.DistributedDataParallel(large(), device_ids=[0]{})\n"


def test_distributed_gradients_are_copied_into_buckets(tmp_path: Path) -> None:
    trace = capture_text(tmp_path, LARGE + "dist.init_process_group('nccl')\n" + WRAP.format("") + LARGE_STEP)
    assert sum(live_bytes(trace).values()) == pytest.approx(3 * LARGE_BYTES, rel=0.01)
    assert peak_bytes(trace) > 3 * LARGE_BYTES


def test_gradients_may_be_views_of_the_buckets(tmp_path: Path) -> None:
    wrap = WRAP.format(", gradient_as_bucket_view=True")
    trace = capture_text(tmp_path, LARGE + "dist.init_process_group('nccl')\n" + wrap + LARGE_STEP)
    assert sum(live_bytes(trace).values()) == pytest.approx(2 * LARGE_BYTES, rel=0.01)


def test_a_program_for_torchrun_is_one_of_one(tmp_path: Path) -> None:
    text = (
        "import os, torch.distributed as dist\nrank = int(os.environ['LOCAL_RANK'])\ndist.init_process_group('nccl')\n"
    )
    text += "model = nn.parallel.DistributedDataParallel(net().to(rank), device_ids=[rank])\n"
    text += "optimizer = torch.optim.Adam(model.parameters())\nassert dist.get_world_size() == 1" + STEP
    assert capture_text(tmp_path, text).steps >= 4


def test_spawned_workers_and_collectives(tmp_path: Path) -> None:
    trace = capture_text(
        tmp_path,
        """
import torch.distributed as dist, torch.multiprocessing as mp

def worker(rank, world):
    dist.init_process_group("nccl", init_method="tcp://10.1.2.3:1234", rank=rank, world_size=world)
    model = nn.parallel.DistributedDataParallel(net().to(rank), device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in batches():
        loss = F.cross_entropy(model(x.to(rank)), y.to(rank))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total)
        gathered = [torch.empty_like(total) for _ in range(world)]
        dist.all_gather(gathered, total)
        names = [None] * world
        dist.all_gather_object(names, "a")
        assert names == ["a"] * world
        dist.barrier()

if __name__ == "__main__":
    mp.spawn(worker, args=(4,), nprocs=4)
""",
    )
    assert trace.steps >= 4
    assert any("rank 0 of 4" in warning for warning in trace.origin.warnings)


# -- programs that must be followed to their end --------------------------------------------------------------------------

FOLLOWED = {
    "prefetching on a stream": """
model, side = net().cuda(), torch.cuda.Stream()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches():
    with torch.cuda.stream(side):
        x, y = x.pin_memory().cuda(non_blocking=True), y.cuda(non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    x.record_stream(torch.cuda.current_stream())
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
""",
    "activations on the host": """
model = net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches():
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
""",
    "per-sample gradients": """
from torch.func import functional_call, grad, jacrev, vmap
model = net().cuda()
parameters = {name: value.detach() for name, value in model.named_parameters()}
def loss_of(parameters, x, y):
    return F.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches():
    gradients = vmap(grad(loss_of), (None, 0, 0))(parameters, x.cuda(), y.cuda())
    assert gradients["0.weight"].shape == (8, 128, 64) and vmap(jacrev(model))(x.cuda()).shape == (8, 10, 64)
    for name, parameter in model.named_parameters():
        parameter.grad = gradients[name].mean(0)
    optimizer.step()
""",
    "sparse gradients": """
table, head = nn.Embedding(1000, 64, sparse=True).cuda(), nn.Linear(64, 10).cuda()
adjacency = torch.sparse_coo_tensor(torch.randint(0, 8, (2, 20)), torch.ones(20), (8, 8)).cuda()
optimizers = torch.optim.SparseAdam(list(table.parameters())), torch.optim.Adam(head.parameters())
for _, y in batches():
    loss = F.cross_entropy(torch.sparse.mm(adjacency, head(table(torch.randint(0, 1000, (8, 5)).cuda()).mean(1))), y.cuda())
    loss.backward()
    assert table.weight.grad.is_sparse and table.weight.grad._values().shape == (40, 64)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
""",
    "by hand, without modules": """
w = torch.randn(64, 10, device="cuda", requires_grad=True)
for x, y in batches():
    F.cross_entropy(x.cuda() @ w, y.cuda()).backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
""",
    "catching everything": """
model = net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    try:
        for x, y in batches():
            F.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
    except:
        continue
""",
    "legacy types": """
model = net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    x, y = torch.cuda.FloatTensor(8, 64).normal_(), torch.cuda.LongTensor([1] * 8)
    assert isinstance(x, torch.cuda.FloatTensor) and x.type(torch.cuda.HalfTensor).dtype == torch.half
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
""",
    "a CUDA graph": """
model, x, y = net().cuda(), torch.randn(8, 64, device="cuda"), torch.zeros(8, dtype=torch.long, device="cuda")
optimizer, graph = torch.optim.SGD(model.parameters(), lr=0.1), torch.cuda.CUDAGraph()
for _ in range(3):
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
with torch.cuda.graph(graph):
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
while True:
    graph.replay()
""",
    "an optimizer around an optimizer": """
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
dist.init_process_group("nccl")
model = net().cuda()
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
for x, y in batches():
    F.cross_entropy(model(x.cuda()), y.cuda()).backward()
    optimizer.step()
""",
    "operators without a meta kernel": """
model = net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches():
    out = model(x.cuda())
    solved = torch.linalg.lstsq(out.T @ out + torch.eye(10, device="cuda"), out.T).solution
    drawn = torch.distributions.Dirichlet(out.exp()).rsample()
    assert solved.shape == (10, 8) and drawn.shape == (8, 10)
    (F.cross_entropy(out, y.cuda()) + solved.mean() + drawn.mean()).backward()
    optimizer.step()
""",
    "lazy modules": """
model = nn.Sequential(nn.LazyLinear(32), nn.ReLU(), nn.LazyLinear(10)).cuda()
model(torch.randn(8, 64).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches():
    F.cross_entropy(model(x.cuda()), y.cuda()).backward()
    optimizer.step()
""",
    "flex attention": """
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
project = nn.Linear(64, 192).cuda()
mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cuda")
optimizer = torch.optim.SGD(project.parameters(), lr=0.1)
for _ in range(6):
    q, k, v = project(torch.randn(2, 128, 64).cuda()).view(2, 128, 3, 4, 16).permute(2, 0, 3, 1, 4)
    flex_attention(q, k, v, block_mask=mask).mean().backward()
    optimizer.step()
""",
    "truncated initialisation": """
layers = [nn.Linear(1024, 1024) for _ in range(8)]
for layer in layers:
    nn.init.normal_(layer.weight, std=50.0)
    nn.init.trunc_normal_(layer.weight, std=0.02, a=-0.04, b=0.04)
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    model(torch.randn(4, 1024).cuda()).mean().backward()
    optimizer.step()
""",
}


@pytest.mark.parametrize("style", FOLLOWED)
def test_is_followed(tmp_path: Path, style: str) -> None:
    trace = capture_text(tmp_path, FOLLOWED[style])
    assert trace.origin.mode == "training"
    assert trace.steps >= 4
    assert peak_bytes(trace) > 0


def test_an_exported_program_infers(tmp_path: Path) -> None:
    trace = capture_text(
        tmp_path,
        """
run = torch.export.export(net().cuda().eval(), (torch.randn(2, 64).cuda(),)).module()
with torch.no_grad():
    for _ in range(6):
        assert run(torch.randn(2, 64).cuda()).shape == (2, 10)
""",
    )
    assert trace.origin.mode == "inference"
    assert live_bytes(trace)[Category.PARAMETERS] == NET_BYTES


def test_sharding_over_several_gpus_is_refused_in_one_sentence(tmp_path: Path) -> None:
    text = "import torch.distributed as dist\nfrom torch.distributed.fsdp import fully_shard\n"
    text += "dist.init_process_group('nccl', rank=0, world_size=4)\nmodel = fully_shard(net().cuda())\n"
    with pytest.raises(CaptureError, match="fully_shard over several GPUs cannot be followed"):
        capture_text(tmp_path, text)
