"""Time models in files: what comes with the package, what `tonnage fit` writes, and what is refused."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.benchmark.time_models import (
    current_model,
    load_model,
    own_model_path,
    read_model,
    require_place,
    shipped_model,
    write_model,
)
from tonnage.errors import InvalidFile, NotFound, UsageError
from tonnage.estimate.host_time import HostModel
from tonnage.estimate.time_model import Spreads, TimeModel

OWN = TimeModel(
    host=HostModel(operators={"aten::mm": 1e-5}, speed=2.0), spreads=Spreads(factors={"calibrated": {"x": 1.0}})
)


def packed(plain: Any) -> bytes:
    return gzip.compress(json.dumps(plain).encode())


def test_a_model_is_the_same_after_a_round_trip() -> None:
    assert load_model(packed(OWN.as_dict()), "it").as_dict() == OWN.as_dict()
    assert load_model(packed(OWN.as_dict()), "it") == OWN


def test_the_shipped_model_is_the_same_after_a_round_trip() -> None:
    shipped = shipped_model()
    assert load_model(packed(shipped.as_dict()), "it").as_dict() == shipped.as_dict()


def test_a_file_is_the_same_after_a_round_trip(tmp_path: Path) -> None:
    first, second = tmp_path / "folder" / "a.json.gz", tmp_path / "b.json.gz"
    write_model(OWN, first)
    write_model(read_model(first), second)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in first.parent.iterdir()) == ["a.json.gz"]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "words": lambda content: b"these are words",
    "half": lambda content: content[: len(content) // 2],
    "a byte in the middle": lambda content: content[:60] + bytes([content[60] ^ 255]) + content[61:],
    "no JSON": lambda content: gzip.compress(b"{"),
    "no object": lambda content: packed([1, 2, 3]),
    "nothing in it": lambda content: packed({}),
    "another version": lambda content: packed({**OWN.as_dict(), "version": 99}),
    "no host": lambda content: packed({k: v for k, v in OWN.as_dict().items() if k != "host"}),
    "an unknown constant": lambda content: packed({**OWN.as_dict(), "copies": {"warp": 9}}),
    "kernels that are none": lambda content: packed({**OWN.as_dict(), "kernels": 3}),
    "another format": lambda content: packed({**OWN.as_dict(), "format": "trace"}),
    "deep lists": lambda content: gzip.compress(b"[" * 100_000),
    "no text": lambda content: gzip.compress(bytes(range(256))),
}
FILLED = shipped_model().as_dict()  # has trees, measured operators and factors of operators
ODD: dict[str, tuple[tuple[str | int, ...], Any, str]] = {
    "a number as text": (("host", "speed"), "2.0", "host.speed must be a number, not '2.0'"),
    "a truth as a number": (("host", "view"), True, "host.view must be a number, not True"),
    "no number": (("energy", "idle_share"), float("nan"), "energy.idle_share must be a number, not nan"),
    "nothing": (("copies", "link_share"), None, "copies.link_share must be a number, not None"),
    "a negative cost": (("host", "copy"), -1e-6, "host.copy must be a number of at least 0"),
    "a host that never ends": (("host", "speed"), 0, "host.speed makes no sense"),
    "a list for an object": (("host",), [1], "host must be an object, not"),
    "a list of operators": (("host", "operators"), ["aten::mm"], "host.operators must be an object"),
    "an operator with a name for a cost": (("host", "operators", "aten::mm"), "x", "host.operators.aten::mm must be"),
    "half a byte": (("copies", "burst_bytes"), 0.5, "copies.burst_bytes must be a whole number"),
    "a table of numbers": (("copies", "pageable_h2d"), [1.0, 2.0], "copies.pageable_h2d must be a list"),
    "rates without sizes": (("copies", "pageable_d2h"), [[1.0]], "copies.pageable_d2h must be a list of 2"),
    "an empty table": (("copies", "pageable_d2h"), [], "copies.pageable_d2h makes no sense"),
    "too few prices": (("energy", "picojoules_operation"), [1.0], "energy.picojoules_operation makes no sense"),
    "a sure thing": (("spreads", "coverage"), 1, "spreads.coverage makes no sense"),
    "factors that are none": (
        ("spreads", "factors"),
        {"calibrated": 1.0},
        "spreads.factors.calibrated must be an object",
    ),
    "measured words": (("measured", "H200"), {"1": "x"}, "measured.H200.1 must be a number"),
    "fitted words": (("fitted",), "today", "fitted must be an object"),
    "kinds that are none": (("kernels", "kinds"), {"product.simt": 3}, "kernels.kinds.product.simt must be an object"),
    "an unknown kind": (
        ("kernels", "kinds", "warp"),
        FILLED["kernels"]["kinds"]["sort"],
        "no class of kernels called warp",
    ),
    "a factor of text": (("kernels", "names"), {"aten::mm": "x"}, "kernels.names.aten::mm must be a number"),
    "one residual": (("kernels", "residuals"), {}, "kernels.residuals must be a list"),
    "a residual without a GPU": (("kernels", "residuals", 0, "gpu"), 3, "kernels.residuals.gpu must be text"),
    "trees of text": (
        ("kernels", "residuals", 0, "trees", "others", "roots"),
        ["1"],
        "roots of the trees must be a list",
    ),
    "trees of fractions": (
        ("kernels", "residuals", 0, "trees", "others", "roots"),
        [0.5],
        "roots of the trees must be a",
    ),
    "an unknown feature": (("kernels", "residuals", 0, "trees", "others", "feature", 0), 99, "points nowhere"),
    "an endless tree": (("kernels", "residuals", 0, "trees", "others", "depth"), 10**9, "the depth of the trees"),
    "a huge node": (("kernels", "residuals", 0, "trees", "others", "left", 0), 2**40, "too large"),
}


@pytest.mark.parametrize("kind", ODD)
def test_a_value_of_the_wrong_kind_is_named(kind: str) -> None:
    (*path, last), value, words = ODD[kind]
    plain = json.loads(json.dumps(FILLED))
    part = plain
    for name in path:
        part = part[name]
    part[last] = value
    with pytest.raises(InvalidFile) as error:
        load_model(packed(plain), "it")
    assert error.value.message.startswith("it is not a time model of this version: ")
    assert words in error.value.message


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_refused(kind: str) -> None:
    with pytest.raises(InvalidFile, match="it is not a time model of this version") as error:
        load_model(DAMAGE[kind](packed(OWN.as_dict())), "it")
    assert "tonnage fit" in error.value.hint


def test_without_a_model_of_ones_own_the_packages_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.benchmark.time_models.user_data_path", lambda _: tmp_path)
    monkeypatch.setenv("TONNAGE_TIME_MODEL", "")
    assert current_model() is shipped_model()


def test_a_model_that_is_named_and_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_TIME_MODEL", str(tmp_path / "none.json.gz"))
    with pytest.raises(
        NotFound, match=r"there is no time model .*none\.json\.gz, which TONNAGE_TIME_MODEL names"
    ) as error:
        current_model()
    assert "tonnage fit" in error.value.hint
    assert "unset TONNAGE_TIME_MODEL" in error.value.hint


def test_ones_own_model_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_TIME_MODEL", str(tmp_path / "own.json.gz"))
    write_model(OWN, own_model_path())
    assert current_model() == OWN


def test_without_the_variable_it_lies_in_the_users_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TONNAGE_TIME_MODEL", raising=False)
    assert own_model_path().name == "time-model.json.gz"
    assert "tonnage" in own_model_path().parts


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="cannot be read"):
        read_model(tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_model(OWN, tmp_path / "file" / "model.json.gz")


def test_a_place_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    require_place(tmp_path / "a" / "b" / "model.json.gz")
    assert not (tmp_path / "a").exists()
    with pytest.raises(UsageError, match="it is a folder"):
        require_place(tmp_path)
    with pytest.raises(UsageError, match="file is no folder"):
        require_place(tmp_path / "file" / "model.json.gz")


def test_what_was_never_measured_is_known_within_a_factor_of_three() -> None:
    bounds = Spreads().around(6.0, "specification", "step_seconds")
    assert (bounds.low, bounds.high) == pytest.approx((2.0, 18.0))


def test_bounds_differ_by_basis() -> None:
    model = replace(OWN.spreads, factors={"calibrated": {"step_seconds": 0.1}, "specification": {"step_seconds": 1.0}})
    calibrated, specified = (model.around(1.0, basis, "step_seconds") for basis in ("calibrated", "specification"))
    assert specified.low < calibrated.low < 1 < calibrated.high < specified.high
