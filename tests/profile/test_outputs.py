"""Files for other tools: folded stacks, speedscope, the flame graph."""

import json
from xml.etree import ElementTree

import jsonschema
import pytest

from tonnage.profile.flamegraph import build_tree, draw
from tonnage.profile.python_stacks import parse_raw
from tonnage.profile.report import Stack
from tonnage.profile.stacks import fold, speedscope

STACKS = (
    Stack(frames=("forward", "Net", "aten::addmm"), seconds=0.003),
    Stack(frames=("backward", "Net", "Addmm<Backward>;0"), seconds=0.006),
    Stack(frames=("backward",), seconds=0.0000001),
)
# The part of speedscope's file format (file-format-spec.ts) that sampled profiles need.
SPEEDSCOPE = {
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {"frames": {"type": "array", "items": {"type": "object", "required": ["name"]}}},
        },
        "profiles": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "name", "unit", "startValue", "endValue", "samples", "weights"],
                "properties": {
                    "type": {"const": "sampled"},
                    "unit": {"enum": ["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]},
                    "samples": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
                    "weights": {"type": "array", "items": {"type": "number"}},
                },
            },
        },
    },
}


def test_folded_stacks_are_whole_microseconds() -> None:
    assert fold(STACKS) == "forward;Net;aten::addmm 3000\nbackward;Net;Addmm<Backward>:0 6000\n"


def test_speedscope_is_as_its_format_says() -> None:
    document = json.loads(speedscope(STACKS, "train.py"))
    jsonschema.validate(document, SPEEDSCOPE)
    profile, frames = document["profiles"][0], document["shared"]["frames"]
    assert len(profile["samples"]) == len(profile["weights"])
    assert profile["endValue"] == pytest.approx(sum(profile["weights"]))
    assert [frames[number]["name"] for number in profile["samples"][0]] == ["forward", "Net", "aten::addmm"]


def test_a_box_holds_what_is_inside_it() -> None:
    root = build_tree(STACKS, "all")
    assert root.seconds == pytest.approx(0.0090001)
    assert root.children["backward"].seconds == pytest.approx(0.0060001)


def test_the_flame_graph_is_one_file_that_parses() -> None:
    text = draw(STACKS, "train.py <b>", "device time")
    root = ElementTree.fromstring(text)
    names = [box.get("data-n") for box in root.iter("{http://www.w3.org/2000/svg}g") if box.get("data-n")]
    assert set(names) == {"all", "forward", "backward", "Net", "aten::addmm", "Addmm<Backward>;0"}
    assert "src=" not in text
    assert "href=" not in text


def test_a_flame_graph_of_nothing_is_empty_not_broken() -> None:
    ElementTree.fromstring(draw((), "nothing"))


def test_stacks_of_python_leave_our_own_frames_out() -> None:
    text = "_run_module_as_main (<frozen runpy>:198);main (tonnage/profile/child.py:9);train (train.py:3) 50\n\nx\n"
    assert parse_raw(text, rate=100) == (Stack(frames=("train (train.py:3)",), seconds=0.5),)
