"""Runtime statistics scale a fabric, and are refused when they are old or of something else."""

from dataclasses import replace

import pytest

from tonnage.errors import DoesNotFit, UsageError
from tonnage.split.devices import HERE, Device, End, Fabric, Lane, Way
from tonnage.split.statistics import LinkStatistics, PlaceStatistics, Spread, Statistics, fabric_under, merged

NOW = 1_000_000.0


def place(name: str, **figures: object) -> Statistics:
    entry = PlaceStatistics(place=name, taken_at=NOW - 10, valid_seconds=60)
    return Statistics(places=(replace(entry, **figures),))  # type: ignore[arg-type]


def link(source: str, target: str, **figures: object) -> Statistics:
    entry = LinkStatistics(source=source, target=target, taken_at=NOW - 10, valid_seconds=60)
    return Statistics(links=(replace(entry, **figures),))  # type: ignore[arg-type]


def star(nodes: str = "abc", gpus: bool = False) -> Fabric:
    """Nodes around a switch, 100 bytes a second each way, a trunk of 1000 in the middle; GPUs behind a bus if wanted."""
    places = [f"{node}/gpu0" if gpus else node for node in nodes]
    devices = tuple(
        Device(name=name, node=node, kind="cpu", speed=2.0, memory_bytes=1000)
        for name, node in zip(places, nodes, strict=True)
    )
    lanes = [Lane(name=f"{n}->s", bytes_second=100, ends=(n, "s")) for n in nodes]
    lanes += [Lane(name=f"t->{n}", bytes_second=100, ends=("t", n)) for n in nodes]
    lanes.append(Lane(name="s->t", bytes_second=1000, ends=("s", "t")))
    lanes += [Lane(name=f"{n} bus", bytes_second=500, ends=(n, f"{n}/gpu0")) for n in nodes if gpus]
    count, trunk = len(nodes), 2 * len(nodes)
    ways = {
        (i, j): Way(
            lanes=((trunk + 1 + i,) if gpus else ()) + (i, trunk, count + j) + ((trunk + 1 + j,) if gpus else ()),
            latency_seconds=1.0,
        )
        for i in range(count)
        for j in range(count)
        if i != j
    }
    return Fabric(devices=devices, lanes=tuple(lanes), ways=ways)


def rate(fabric: Fabric, source: int, target: int) -> float:
    return min(fabric.lanes[lane].bytes_second for lane in fabric.ways[source, target].lanes)


def test_observed_speed_scales_a_device() -> None:
    seen = place("b", speed=Spread(median=0.5, p95=0.25), load=0.9)
    assert [d.speed for d in fabric_under(star(), seen, now=NOW).devices] == [2.0, 1.0, 2.0]
    assert fabric_under(star(), seen, now=NOW, pessimistic=True).devices[1].speed == 0.5


def test_without_an_observed_speed_the_load_is_what_others_take() -> None:
    assert fabric_under(star(), place("b", load=0.25), now=NOW).devices[1].speed == 1.5


def test_a_full_device_still_gives_a_share() -> None:
    assert fabric_under(star(), place("b", load=1.0), now=NOW).devices[1].speed == pytest.approx(0.1)


def test_memory_that_others_use_is_not_available() -> None:
    assert fabric_under(star(), place("a", available_bytes=300), now=NOW).devices[0].memory_bytes == 300
    assert fabric_under(star(), place("a", available_bytes=3000), now=NOW).devices[0].memory_bytes == 1000


def test_an_observed_bandwidth_narrows_the_lanes_of_its_way() -> None:
    seen = link("a", "b", bandwidth_bytes_second=Spread(median=50, p95=40))
    fabric = fabric_under(star(), seen, now=NOW)
    assert rate(fabric, 0, 1) == 50
    assert rate(fabric_under(star(), seen, now=NOW, pessimistic=True), 0, 1) == 40


def test_a_lane_that_another_way_uses_well_is_not_to_blame() -> None:
    slow, good = Spread(median=50, p95=50), Spread(median=100, p95=100)
    seen = merged(
        link("a", "b", bandwidth_bytes_second=slow),
        link("a", "c", bandwidth_bytes_second=slow),
        link("b", "c", bandwidth_bytes_second=good),
        link("c", "b", bandwidth_bytes_second=good),
    )
    fabric = fabric_under(star(), seen, now=NOW)
    rates = {lane.name: lane.bytes_second for lane in fabric.lanes}
    assert rates == {"a->s": 50, "b->s": 100, "c->s": 100, "t->a": 100, "t->b": 100, "t->c": 100, "s->t": 1000}


def test_a_way_that_its_lanes_do_not_explain_gets_a_lane_of_its_own() -> None:
    slow, good = Spread(median=50, p95=50), Spread(median=100, p95=100)
    pairs = {("a", "b"): slow, ("a", "c"): good, ("c", "b"): good}
    seen = merged(*[link(*pair, bandwidth_bytes_second=spread) for pair, spread in pairs.items()])
    fabric = fabric_under(star(), seen, now=NOW)
    assert [rate(fabric, 0, 1), rate(fabric, 0, 2), rate(fabric, 2, 1)] == [50, 100, 100]


def test_a_link_that_is_faster_than_the_file_says_is_believed() -> None:
    fabric = fabric_under(star(), link("a", "b", bandwidth_bytes_second=Spread(median=300, p95=300)), now=NOW)
    assert rate(fabric, 0, 1) == 300
    assert fabric.lanes[6].bytes_second == 1000


def test_what_nodes_see_says_nothing_of_the_bus_to_their_gpus() -> None:
    seen = link("a", "b", bandwidth_bytes_second=Spread(median=50, p95=50))
    fabric = fabric_under(star(gpus=True), seen, now=NOW)
    assert rate(fabric, 0, 1) == 50
    assert [lane.bytes_second for lane in fabric.lanes if "bus" in lane.name] == [500, 500, 500]


def test_an_observed_latency_is_that_of_the_way() -> None:
    seen = link("a", "b", latency_seconds=Spread(median=2.0, p95=3.0))
    assert fabric_under(star(), seen, now=NOW).ways[0, 1].latency_seconds == 2.0
    assert fabric_under(star(), seen, now=NOW, pessimistic=True).ways[0, 1].latency_seconds == 3.0


def test_a_lost_node_is_removed_with_its_ways() -> None:
    fabric = fabric_under(star(gpus=True), place("b", is_lost=True), now=NOW)
    assert [device.node for device in fabric.devices] == ["a", "c"]
    assert set(fabric.ways) == {(0, 1), (1, 0)}
    assert [fabric.lanes[lane].name for lane in fabric.ways[0, 1].lanes] == ["a bus", "a->s", "s->t", "t->c", "c bus"]


def test_a_lost_link_takes_the_ways_over_it() -> None:
    fabric = fabric_under(star(), link("a", "s", is_lost=True), now=NOW)
    assert {pair for pair in fabric.ways if 0 in pair} == {(1, 0), (2, 0)}


def test_a_lost_way_between_two_nodes_is_theirs_alone() -> None:
    fabric = fabric_under(star(), link("a", "b", is_lost=True), now=NOW)
    assert set(star().ways) - set(fabric.ways) == {(0, 1)}


def test_with_everything_lost_nothing_is_left() -> None:
    with pytest.raises(DoesNotFit, match="all 1 devices are lost"):
        fabric_under(star("a"), place("a", is_lost=True), now=NOW)


def test_old_statistics_are_refused_by_name_and_age() -> None:
    with pytest.raises(UsageError, match="the statistics of b are 110 s old and were valid for 60 s"):
        fabric_under(star(), place("b", load=0.5), now=NOW + 100)


def test_old_statistics_are_left_out_where_the_caller_is_told() -> None:
    told: list[str] = []
    seen = merged(place("b", load=0.5), place("a", load=0.5, valid_seconds=1000.0))
    fabric = fabric_under(star(), seen, now=NOW + 100, ignore_old=told.append)
    assert [device.speed for device in fabric.devices] == [1.0, 2.0, 2.0]
    assert told == ["the statistics of b are 110 s old and were valid for 60 s; left out"]


def test_statistics_from_the_future_are_refused() -> None:
    with pytest.raises(UsageError, match="the statistics of a->b are from the future, by 90 s"):
        fabric_under(star(), link("a", "b"), now=NOW - 100)


@pytest.mark.parametrize("seen", [place("hopper"), link("a", "hopper"), link("hopper", "a")])
def test_statistics_of_unknown_places_are_refused(seen: Statistics) -> None:
    with pytest.raises(UsageError, match="statistics of 'hopper', which is not in the cluster"):
        fabric_under(star(), seen, now=NOW)


def test_the_newest_source_wins() -> None:
    old, new = place("a", load=0.1, taken_at=NOW - 50), place("a", load=0.9, taken_at=NOW - 5)
    assert merged(new, old) == merged(old, new) == new


def test_sources_that_tell_different_things_complete_each_other() -> None:
    memory, speed = place("a", available_bytes=300), place("a", speed=Spread(median=0.5, p95=0.5), taken_at=NOW)
    device = fabric_under(star(), merged(speed, memory), now=NOW).devices[0]
    assert (device.speed, device.memory_bytes) == (1.0, 300)


def test_a_node_that_is_back_is_not_lost() -> None:
    seen = merged(place("a", is_lost=True, taken_at=NOW - 50), place("a", load=0.5))
    assert [device.speed for device in fabric_under(star(), seen, now=NOW).devices] == [1.0, 2.0, 2.0]


def test_what_was_seen_before_a_loss_counts_no_more() -> None:
    seen = merged(place("a", load=0.5), place("a", is_lost=True, taken_at=NOW))
    assert [entry.is_lost for entry in seen.places] == [True]


# -- the ends -------------------------------------------------------------------------------------------------------------


def star_with_ends() -> Fabric:
    """Inputs at a, outputs at c."""
    fabric = star()
    return replace(
        fabric,
        inputs=End(node="a", ways={0: HERE, 1: fabric.ways[0, 1], 2: fabric.ways[0, 2]}),
        outputs=End(node="c", ways={0: fabric.ways[0, 2], 1: fabric.ways[1, 2], 2: HERE}),
    )


def test_without_news_the_ends_stay_as_they_are() -> None:
    assert fabric_under(star_with_ends(), Statistics(), now=NOW) == star_with_ends()


def test_what_is_observed_of_a_link_holds_for_the_ends() -> None:
    seen = link("a", "b", latency_seconds=Spread(median=5.0, p95=5.0), bandwidth_bytes_second=Spread(median=10, p95=10))
    fabric = fabric_under(star_with_ends(), seen, now=NOW)
    assert fabric.inputs is not None
    assert fabric.outputs is not None
    assert fabric.inputs.ways[1] == fabric.ways[0, 1]
    assert (fabric.inputs.ways[1].latency_seconds, fabric.bytes_second(fabric.inputs.ways[1])) == (5.0, 10)
    assert fabric.outputs.ways[0] == fabric.ways[0, 2]


def test_ends_keep_to_their_devices_when_others_are_lost() -> None:
    fabric = fabric_under(star_with_ends(), place("b", is_lost=True), now=NOW)
    assert [device.name for device in fabric.devices] == ["a", "c"]
    assert fabric.inputs == End(node="a", ways={0: HERE, 1: fabric.ways[0, 1]})
    assert fabric.outputs == End(node="c", ways={0: fabric.ways[0, 1], 1: HERE})


def test_an_end_whose_link_is_lost_has_no_way_to_that_device() -> None:
    fabric = fabric_under(star_with_ends(), link("b", "c", is_lost=True), now=NOW)
    assert fabric.outputs is not None
    assert set(fabric.outputs.ways) == {0, 2}


def test_a_lost_end_is_refused() -> None:
    with pytest.raises(UsageError, match="outputs end at c, which is lost"):
        fabric_under(star_with_ends(), place("c", is_lost=True), now=NOW)
