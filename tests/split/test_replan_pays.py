"""Another distribution costs a migration, and pays after a while or never."""

from math import inf

import pytest

from tonnage.errors import UsageError
from tonnage.split.devices import Device, Fabric, Lane, Way
from tonnage.split.replan import Migration, migration, migration_seconds

DEVICES = tuple(Device(name=name, node=name, kind="cpu") for name in "abc")
# All data leaves through the lane of its device; a sends 10 bytes a second, the others 100.
LANES = tuple(Lane(name=f"{name} out", bytes_second=10 if name == "a" else 100) for name in "abc")
FABRIC = Fabric(
    devices=DEVICES,
    lanes=LANES,
    ways={(i, j): Way(lanes=(i,), latency_seconds=0.5) for i in range(3) for j in range(3) if i != j},
)
BYTES: dict[str | int, int] = {1: 40, 2: 60, 3: 0}
OLD: dict[str | int, str] = {1: "a", 2: "a", 3: "b"}


def change(
    new: dict[str | int, str], old_period: float = 2.0, new_period: float = 1.0, restart_seconds: float = 0.0
) -> Migration:
    return migration(
        OLD, new, BYTES, FABRIC,
        old_period_seconds=old_period, new_period_seconds=new_period, restart_seconds=restart_seconds,
    )  # fmt: skip


def test_only_weights_on_another_device_move() -> None:
    assert change({1: "b", 2: "a", 3: "c"}).moved_bytes == {("a", "b"): 40}


def test_moves_that_share_a_lane_wait_for_each_other() -> None:
    found = change({1: "b", 2: "c", 3: "b"})
    assert found.moved_bytes == {("a", "b"): 40, ("a", "c"): 60}
    assert (found.total_bytes, found.seconds) == (100, 10.5)


def test_moves_over_different_lanes_go_at_once() -> None:
    assert migration_seconds({("a", "b"): 40, ("b", "c"): 100}, FABRIC) == 4.5


def test_the_new_one_is_ahead_when_it_has_made_up_for_the_pause() -> None:
    found = change({1: "b", 2: "c", 3: "b"})
    assert found.seconds_until_ahead == 21.0  # 10.5 samples of the old; the new makes 10.5 in the 10.5 s that are left
    assert found.samples_until_ahead == 10.5


def test_a_restart_makes_the_pause_longer() -> None:
    assert change(OLD, restart_seconds=3.0).seconds_until_ahead == 6.0


def test_a_slower_one_never_pays() -> None:
    found = change({1: "b", 2: "a", 3: "b"}, old_period=1.0, new_period=1.0)
    assert (found.samples_until_ahead, found.seconds_until_ahead) == (None, None)
    assert found.total_bytes == 40


def test_after_a_loss_the_new_one_is_ahead_as_soon_as_it_runs() -> None:
    found = change({1: "b", 2: "a", 3: "b"}, old_period=inf)
    assert (found.seconds_until_ahead, found.samples_until_ahead) == (4.5, 0)


def test_weights_of_a_lost_device_come_from_the_keeper() -> None:
    rest = Fabric(devices=DEVICES[1:], lanes=LANES, ways={(0, 1): Way(lanes=(1,)), (1, 0): Way(lanes=(2,))})
    new: dict[str | int, str] = {1: "b", 2: "c", 3: "b"}
    found = migration(OLD, new, BYTES, rest, old_period_seconds=inf, new_period_seconds=1, keeper="b")
    assert found.moved_bytes == {("b", "c"): 60}


def test_a_lost_device_without_a_keeper_is_named() -> None:
    rest = Fabric(devices=DEVICES[1:])
    with pytest.raises(UsageError, match="a is lost, and no device keeps its weights"):
        migration(OLD, dict.fromkeys(OLD, "b"), BYTES, rest, old_period_seconds=inf, new_period_seconds=1)


def test_a_way_that_is_missing_is_named() -> None:
    with pytest.raises(UsageError, match="no way leads from a to b"):
        migration_seconds({("a", "b"): 1}, Fabric(devices=DEVICES))


def test_distributions_of_different_networks_are_refused() -> None:
    with pytest.raises(UsageError, match="the old distribution has no operation 9"):
        change({9: "a"})


@pytest.mark.parametrize("periods", [(0.0, 1.0), (1.0, -1.0), (1.0, inf), (float("nan"), 1.0)])
def test_impossible_periods_are_refused(periods: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="cannot be compared"):
        change(OLD, *periods)
