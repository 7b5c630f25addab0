"""Which configuration keeps a promise, and what is said when none does."""

import re
from dataclasses import replace

import pytest

from tonnage.errors import DoesNotFit
from tonnage.estimate.estimate import Estimate, Interval, TimeEstimate
from tonnage.estimate.recommend import Limits, recommend

GIB = 1 << 30


def interval(value: float, spread: float = 0.2) -> Interval:
    return Interval(value, value * (1 - spread), value * (1 + spread))


def estimate(
    gpu: str = "A",
    *,
    count: int = 1,
    step: float = 1.0,
    joules: float = 100.0,
    price: float | None = 1.0,
    need: int = 8 * GIB,
) -> Estimate:
    nothing = interval(0.0)
    time = TimeEstimate(
        basis="specification",
        bound_by="GPU",
        step_seconds=interval(step),
        forward_seconds=nothing,
        backward_seconds=nothing,
        optimizer_seconds=nothing,
        h2d_seconds=nothing,
        d2h_seconds=nothing,
        power_watts=interval(100.0),
        energy_joules_step=interval(joules * count),
        utilisation=1.0,
        cost_usd_hour=None if price is None else Interval(price * count, price * count, price * count),
    )
    memory = Interval(need, need, need)
    return Estimate(
        gpu=gpu, fits=need <= 16 * GIB, basis="specification", gpu_count=count, peak_allocated_bytes=memory,
        peak_reserved_bytes=memory, device_bytes=memory, usable_bytes=16 * GIB, categories={}, largest=(), storage_bytes=0,
        h2d_bytes_step=0, d2h_bytes_step=0, time=time,
    )  # fmt: skip


def test_the_fewest_gpus_that_keep_the_deadline_win() -> None:
    answer = recommend([estimate(count=count) for count in (1, 2, 4)], Limits(steps=3600, deadline_seconds=2400))
    assert answer.chosen.estimate.gpu_count == 2
    assert [c.estimate.gpu_count for c in answer.alternatives] == [4]
    assert [c.estimate.gpu_count for c in answer.rejected] == [1]


def test_the_upper_bound_has_to_keep_the_promise() -> None:
    with pytest.raises(DoesNotFit, match="time binds"):
        recommend([estimate()], Limits(steps=3600, deadline_seconds=3700))


def test_among_as_many_gpus_the_cheaper_run_wins() -> None:
    slow, fast = estimate("slow", step=2.0, price=1.0), estimate("fast", step=1.0, price=1.5)
    assert recommend([slow, fast], Limits(steps=100)).chosen.name == "fast"


def test_a_gpu_that_is_too_small_is_no_configuration() -> None:
    with pytest.raises(DoesNotFit, match="memory binds") as error:
        recommend([estimate(need=20 * GIB)], Limits(steps=1))
    assert "25 % too much" in error.value.message
    assert error.value.hint == "try a smaller batch, or on several GPUs --shard zero3"


def test_the_binding_limit_and_the_deadline_that_would_do_are_named() -> None:
    with pytest.raises(DoesNotFit) as error:
        recommend([estimate(count=2), estimate(count=4)], Limits(steps=36000, deadline_seconds=3600, most_gpus=4))
    assert "the nearest is 4 x A; time: needs up to 3 h 00 min of 60 min" in error.value.message
    assert error.value.hint == "with a deadline of 3 h 00 min it would do"


def test_every_limit_that_is_missed_is_relaxed_in_the_hint() -> None:
    with pytest.raises(DoesNotFit, match="time binds") as error:
        recommend([estimate(price=2.0)], Limits(steps=36000, deadline_seconds=600, most_usd=12.0))
    assert error.value.hint == "with a deadline of 12 h 00 min and a budget of $24.00 it would do"


@pytest.mark.parametrize("seconds", [0.0123, 1.2345, 7000.1, 7259.9, 123456.7])
def test_what_the_hint_offers_is_enough(seconds: float) -> None:
    with pytest.raises(DoesNotFit) as error:
        recommend([estimate(step=seconds)], Limits(steps=1, most_joules=7.77e7, deadline_seconds=seconds / 2))
    parts = re.findall(r"([\d.]+) (us|ms|s|min|h|days)", error.value.hint)
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}
    assert sum(float(number) * units[unit] for number, unit in parts) >= 1.2 * seconds * 0.999


def test_memory_is_judged_by_its_upper_bound() -> None:
    probably = replace(estimate(), device_bytes=Interval(15 * GIB, 14 * GIB, 17 * GIB))
    with pytest.raises(DoesNotFit, match="memory: needs up to 17"):
        recommend([probably], Limits(steps=1))


def test_a_budget_cannot_be_promised_without_a_price() -> None:
    with pytest.raises(DoesNotFit, match="price is not known"):
        recommend([estimate(price=None)], Limits(steps=1, most_usd=10.0))


def test_energy_counts_when_no_price_is_known() -> None:
    hungry, modest = estimate("hungry", joules=200, price=None), estimate("modest", joules=100, price=None)
    assert recommend([hungry, modest], Limits(steps=1)).chosen.name == "modest"


def test_estimates_without_a_time_are_left_out() -> None:
    with pytest.raises(DoesNotFit, match="no GPU was considered"):
        recommend([replace(estimate(), time=None)], Limits(steps=1))


def test_the_answer_is_plain_data() -> None:
    answer = recommend([estimate(count=count) for count in (1, 2)], Limits(steps=3600, deadline_seconds=2400)).as_dict()
    assert answer["chosen"]["gpu_count"] == 2
    assert answer["rejected"][0]["reasons"]
    assert answer["limits"] == {
        "steps": 3600, "deadline_seconds": 2400, "most_gpus": None, "most_usd": None, "most_joules": None,
    }  # fmt: skip
