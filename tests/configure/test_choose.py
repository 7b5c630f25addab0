"""The choice: hard limits, preferences, order, and the comparison with the least predicted time."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placing import cluster_of, example_cluster, indicators, rules, waiting, work

from tonnage.configure.answer import Choice
from tonnage.configure.choose import TOLERANCE, choose
from tonnage.configure.rules import Consequence, Rule, Rules
from tonnage.configure.work import Known, Work
from tonnage.errors import DoesNotFit, InvalidFile, NotFound, UsageError
from tonnage.estimate.estimate import Interval


def chosen(asked: Work) -> Choice:
    return choose(asked, example_cluster(), rules())


def test_one_gpu_is_the_default() -> None:
    choice = chosen(work())
    assert choice.configuration.name == "hopper: H200, pcie"
    assert not choice.overruled


def test_several_gpus_are_used_if_the_program_can() -> None:
    configuration = chosen(work(most_gpus=8)).configuration
    assert configuration.name == "hopper: 8 x H200, nvlink"
    assert configuration.cpu_cores <= 112


def test_a_gpu_on_which_the_program_has_run_is_taken_at_what_was_measured() -> None:
    """A run by the clock holds copies and idle moments in its phases: they are not counted again."""
    run = indicators(gpu="H200", step_seconds=0.08, forward_seconds=0.03, backward_seconds=0.04, idle_seconds=0.005)
    asked = work(indicators=indicators(gpu="A100 SXM 80GB", idle_seconds=0.04, step_seconds=0.14), seen={"H200": run})
    choice = chosen(asked)
    assert (choice.configuration.gpu, choice.prediction.basis) == ("H200", "measured")
    assert choice.prediction.step_seconds == pytest.approx(0.08)


def test_every_candidate_is_listed_and_all_but_one_have_a_reason() -> None:
    choice = chosen(work(most_gpus=8))
    names = [one.name for one in choice.considered]
    assert len(names) == len(set(names)) == 12
    assert [one.name for one in choice.considered if not one.reason] == [choice.configuration.name]


def test_a_rule_that_rejects_is_named() -> None:
    reasons = {one.name: one.reason for one in chosen(work(most_gpus=8)).considered}
    assert reasons["hopper: 8 x H200, pcie"].startswith("rule short-forward: ")
    assert reasons["desk: RTX 4090, pcie"] == "rule computing-first puts hopper: 8 x H200, nvlink first"
    assert reasons["storage: no GPU"] == "the program computes on a GPU, and here is none"


def test_loading_gets_as_many_workers_as_it_needs() -> None:
    choice = chosen(work(indicators=waiting(workers=2)))
    assert choice.prediction.parts["data wait"] == 0
    assert 2 < choice.configuration.loader_workers < choice.configuration.cpu_cores <= 112


def test_a_choice_that_is_too_slow_is_overruled() -> None:
    slow = Rule(name="cores", when=(), then=Consequence(order=("cpu_cores",)), reason="more cores are better")
    first = Rule(name="no-workers", when=(), then=replace(Consequence(), pinned_memory=False), reason="why not")
    cluster = example_cluster()
    cluster = replace(
        cluster, nodes=tuple(replace(n, cpu_cores=200) if n.group == "desk" else n for n in cluster.nodes)
    )
    choice = choose(work(), cluster, Rules(version="1", rules=(first, slow)))
    assert choice.overruled
    assert choice.configuration.node_type == "hopper"
    rejected = next(one for one in choice.considered if one.name == choice.rules_configuration.name)
    assert "slower than the minimum" in rejected.reason


def test_memory_of_the_gpu_binds() -> None:
    with pytest.raises(DoesNotFit) as error:
        chosen(work(indicators=indicators(peak_gpu_bytes=200 << 30)))
    assert (
        "GPU memory binds: the nearest is hopper: H200, pcie: GPU memory: needs 200 GiB of 140 GiB (43 % too much)"
        in (error.value.message)
    )


def test_memory_of_the_host_binds() -> None:
    with pytest.raises(DoesNotFit, match=r"host memory binds.*needs 3\.00 TiB of 2\.00 TiB \(50 % too much\)"):
        chosen(work(indicators=indicators(peak_host_bytes=3 << 40)))


def test_a_program_for_processors_goes_where_there_are_cores() -> None:
    on_cpu = indicators(device="cpu", gpu="", h2d_seconds=0.0, h2d_bytes=0, peak_gpu_bytes=None, cpu_cores_used=30.0)
    choice = chosen(work(indicators=on_cpu))
    assert choice.configuration.gpu_count == 0
    assert choice.configuration.communication == "none"
    assert choice.configuration.cpu_cores >= 30


def test_a_program_seen_on_processors_only_is_not_put_on_a_gpu(tmp_path: Path) -> None:
    only_gpus = cluster_of(tmp_path, "nodes: [{name: a, gpus: [{model: H200}], cpu: {cores: 4}, memory: 64 GiB}]")
    on_cpu = indicators(device="cpu", gpu="", h2d_seconds=0.0)
    reasons = {one.name: one.reason for one in choose(work(indicators=on_cpu), only_gpus, rules()).considered}
    assert "nothing is known of it on a GPU" in reasons["a: H200, pcie"]


def known(seconds: float) -> Known:
    return Known(
        forward_seconds=seconds / 2, backward_seconds=seconds / 2, optimizer_seconds=0.0,
        step_seconds=Interval(seconds, seconds / 2, seconds * 2), device_bytes=9 << 30,
    )  # fmt: skip


def test_an_estimate_counts_more_than_the_catalogue() -> None:
    choice = chosen(work(known={"H200": known(5.0), "RTX 4090": known(0.01), "RTX 3090": known(0.1)}))
    assert choice.configuration.gpu == "RTX 4090"
    assert choice.prediction.basis == "estimate"


def test_a_measured_step_corrects_the_estimates() -> None:
    twice = work(known={"RTX 3090": known(0.0475), "H200": known(0.01)})
    assert chosen(twice).prediction.parts["compute"] == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"run_steps": 0}, UsageError),
        ({"most_gpus": 0}, UsageError),
        ({"gradient_bytes": -1}, InvalidFile),
        ({"known": {"H200": known(float("nan"))}}, InvalidFile),
        ({"indicators": indicators(gpu="no such")}, NotFound),
    ],
)
def test_impossible_work_is_refused(changes: dict[str, object], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        work(**changes)


seconds = st.floats(1e-5, 10)


@settings(max_examples=40, deadline=None)
@given(
    forward=seconds, backward=seconds, optimizer=seconds, copy=seconds, wait=seconds, idle=seconds,
    workers=st.integers(0, 16), most_gpus=st.sampled_from([1, 2, 8]), nbytes=st.integers(0, 10**11),
)  # fmt: skip
def test_an_answer_is_never_more_than_the_tolerance_from_the_minimum(
    forward: float, backward: float, optimizer: float, copy: float, wait: float, idle: float, workers: int,
    most_gpus: int, nbytes: int,
) -> None:  # fmt: skip
    step = forward + backward + optimizer + copy + wait + idle
    seen = indicators(
        forward_seconds=forward, backward_seconds=backward, optimizer_seconds=optimizer, h2d_seconds=copy,
        data_wait_seconds=wait, idle_seconds=idle, step_seconds=step, loader_workers=workers, h2d_bytes=nbytes,
    )  # fmt: skip
    choice = chosen(work(indicators=seen, most_gpus=most_gpus))
    run = choice.prediction.run_seconds
    assert choice.minimum_run_seconds <= run.value <= choice.minimum_run_seconds * (1 + TOLERANCE) + 1e-12
    assert run.low <= run.value <= run.high
    times = [one.prediction.run_seconds.value for one in choice.considered if one.prediction]
    assert min(times) >= choice.minimum_run_seconds - 1e-12
    assert 1 <= choice.configuration.cpu_cores <= 112
