"""Stages on several hosts of this machine: rates are kept, can be changed while running, and a dead link ends a run."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from networks import Perceptron
from splitting import in_a_row

from tonnage.errors import Unreachable
from tonnage.program.exported import Exported, export_module
from tonnage.stages.hosts import StageHost, Timeouts
from tonnage.stages.namespaces import Rig, linked_hosts, reason_against, switched_hosts
from tonnage.stages.run import run_distribution

WIDTH, ROWS = 512, 128
MESSAGE_BYTES = WIDTH * ROWS * 4
MBIT = 1e6
LIMITS = Timeouts(start_seconds=100, setup_seconds=60, silence_seconds=5, stall_seconds=4)


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    if reason := reason_against():
        pytest.skip(f"NO NETWORK NAMESPACES: several hosts are not tried: {reason}")


def network() -> Exported:
    return export_module(Perceptron(WIDTH), torch.randn(ROWS, WIDTH))


def hosts_of(rig: Rig) -> list[StageHost]:
    return [StageHost(device=name, address=rig.addresses[name], prefix=rig.prefix(name)) for name in rig.addresses]


def seconds_at(rate_bits_second: float) -> float:
    return MESSAGE_BYTES * 8 / rate_bits_second


@pytest.mark.parametrize("transport", ["sockets", "gloo"])
def test_the_slowest_link_sets_the_period(transport: str) -> None:
    exported = network()
    with switched_hosts({"d0": 200 * MBIT, "d1": 40 * MBIT}) as rig:
        report = run_distribution(
            exported, in_a_row(exported.module, 2), hosts=hosts_of(rig), samples=24, compare=True,
            transport=transport, timeouts=LIMITS,
        )  # fmt: skip
    assert report.is_equal
    assert report.period_seconds.median == pytest.approx(seconds_at(40 * MBIT) / 0.955, rel=0.1)


def test_each_pair_has_its_own_rate_and_only_its_own_way() -> None:
    exported = network()
    rates = {("d0", "d1"): 80 * MBIT, ("d1", "d2"): 40 * MBIT}
    with linked_hosts(["d0", "d1", "d2"], rates) as rig:
        report = run_distribution(
            exported, in_a_row(exported.module, 3), hosts=hosts_of(rig), samples=24, timeouts=LIMITS, compare=True
        )
    found = {(link.source, link.target): link.seconds.median for link in report.links}
    assert report.is_equal
    assert set(found) == set(rates)
    assert found["d1", "d2"] == pytest.approx(seconds_at(40 * MBIT) / 0.955, rel=0.15)


def test_a_rate_can_be_changed_while_it_is_in_use() -> None:
    exported = network()
    moments: list[float] = []
    with linked_hosts(["d0", "d1"], {("d0", "d1"): 160 * MBIT}) as rig:

        def note(number: int, _output: Any) -> None:
            moments.append(time.perf_counter())
            if number == 40:
                rig.set_rate("d0", "d1", 40 * MBIT)

        run_distribution(
            exported, in_a_row(exported.module, 2), hosts=hosts_of(rig), samples=60, timeouts=LIMITS, on_output=note
        )
    before, after = (moments[39] - moments[29]) / 10, (moments[70] - moments[60]) / 10
    assert after == pytest.approx(seconds_at(40 * MBIT) / 0.955, rel=0.15)
    assert before < after / 1.5


@pytest.mark.parametrize("transport", ["sockets", "gloo"])
def test_a_slow_transfer_is_no_stall(transport: str) -> None:
    exported = export_module(Perceptron(WIDTH), torch.randn(8 * ROWS, WIDTH))
    limits = Timeouts(start_seconds=100, setup_seconds=60, stall_seconds=3.5)
    with switched_hosts({"d0": 4 * MBIT, "d1": 4 * MBIT}) as rig:  # more than four seconds a sample
        report = run_distribution(
            exported, in_a_row(exported.module, 2), hosts=hosts_of(rig), samples=[torch.randn(8 * ROWS, WIDTH)] * 2,
            transport=transport, timeouts=limits,
        )  # fmt: skip
    assert report.links[0].seconds.median > limits.stall_seconds


def test_a_link_that_stalls_ends_the_run_with_a_word_about_it() -> None:
    exported = network()
    stalled: list[float] = []
    with linked_hosts(["d0", "d1"], {("d0", "d1"): 160 * MBIT}) as rig:

        def stall(number: int, _output: Any) -> None:
            if number == 12:
                rig.set_rate("d0", "d1", 1000)  # two minutes for a packet
                stalled.append(time.monotonic())

        with pytest.raises(Unreachable) as caught:
            run_distribution(
                exported, in_a_row(exported.module, 2), hosts=hosts_of(rig), samples=1000, timeouts=LIMITS,
                on_output=stall,
            )  # fmt: skip
    assert time.monotonic() - stalled[0] < LIMITS.stall_seconds + 12
    assert "d0" in caught.value.message
    assert "d1" in caught.value.message
