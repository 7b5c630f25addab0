"""Every wrong campaign file gets one clear sentence with its file, line and field."""

from pathlib import Path

import pytest

from tonnage.benchmark.campaign_file import find_campaign, read_campaign
from tonnage.errors import InvalidFile, NotFound

HEAD = "name: a\n"
GRID = HEAD + "workloads:\n  - family: mlp\n    sample: grid\n"
RANDOM = HEAD + "workloads:\n  - family: mlp\n    sample: random\n    count: 3\n"
CONVOLUTIONAL = GRID.replace("mlp", "convolutional")
WIDE = "{from: 8, to: 8192, steps: 400}"

BROKEN = {
    "unknown_family": (GRID.replace("mlp", "mpl"), ":3: workloads[0].family: unknown family 'mpl'; did you mean mlp?"),
    "unknown_sample": (
        GRID.replace("grid", "gird"),
        ":4: workloads[0].sample: must be 'grid', 'random' or 'latin-hypercube', not 'gird'",
    ),
    "unknown_number": (GRID + "    fix: {widht: 8}\n", ":5: workloads[0].fix.widht: mlp has no such number; did you"),
    "unknown_varied": (
        GRID + "    vary:\n      q: [1, 2]\n",
        ":6: workloads[0].vary.q: mlp has no such number; it has",
    ),
    "unknown_field": (
        GRID + "    varry: {}\n",
        ":5: workloads[0].varry: there is no such field here; did you mean vary",
    ),
    "family_missing": (HEAD + "workloads:\n  - sample: grid\n", ":3: workloads[0].family: is missing"),
    "name_missing": ("workloads: []\n", ":1: name: is missing"),
    "no_workloads": (HEAD + "workloads: []\n", ":2: workloads: must not be empty"),
    "name_twice": (HEAD + GRID, ":2: 'name' is given twice; first on line 1"),
    "strange_name": (GRID.replace("name: a", "name: a b"), ":1: name: must be made of letters, digits"),
    "range_too_low": (
        RANDOM + "    vary: {width: [4, 64]}\n",
        ":6: workloads[0].vary.width: width must be a whole number from 8 to 16384, not 4",
    ),
    "range_too_high": (
        RANDOM + "    vary: {batch: [1, 5000]}\n",
        ":6: workloads[0].vary.batch: batch must be a whole number from 1 to 4096, not 5000",
    ),
    "range_backwards": (RANDOM + "    vary: {width: [64, 8]}\n", ".width: a range goes from a smaller to a larger"),
    "range_of_words": (RANDOM + "    vary: {width: [a, b]}\n", ".width: width must be a whole number from 8 to 16384"),
    "range_of_choices": (
        RANDOM + "    vary: {activation: {from: relu, to: tanh}}\n",
        ".activation: activation has no range; list values of relu, gelu, tanh, sigmoid",
    ),
    "not_a_multiple": (
        RANDOM.replace("mlp", "unet") + "    vary: {width: [8, 60]}\n",
        ".width: width must be a whole number from 8 to 256 in steps of 8, not 60",
    ),
    "value_outside": (GRID + "    vary: {width: [8, 9, 7]}\n", ".width: width must be a whole number from 8 to 16384"),
    "value_twice": (GRID + "    vary: {width: [8, 9, 8]}\n", ":5: workloads[0].vary.width: 8 is given twice"),
    "fixed_outside": (
        GRID + "    fix: {depth: 0}\n",
        ":5: workloads[0].fix.depth: depth must be a whole number from 1",
    ),
    "fixed_list": (GRID + "    fix: {depth: [1, 2]}\n", ":5: workloads[0].fix.depth: must be one value; what has"),
    "misspelt_choice": (GRID + "    fix: {activation: rulu}\n", "not 'rulu'; did you mean relu?"),
    "one_value_varied": (GRID + "    vary: {depth: 2}\n", ".depth: must be a list, not 2; what has one value belongs"),
    "empty_values": (GRID + "    vary: {depth: []}\n", ":5: workloads[0].vary.depth: must not be empty"),
    "strange_mapping": (GRID + "    vary: {depth: {low: 1}}\n", ".depth: must have `values: [...]`, or `from`, `to`"),
    "range_and_values": (GRID + "    vary: {depth: {values: [1], from: 1}}\n", ".depth: must have `values: [...]`, or"),
    "grid_over_a_range": (
        GRID + "    vary: {depth: [1, 8]}\n",
        ".depth: a grid needs to know where in a range; list values, or write {from: 1, to: 8, steps: 4}",
    ),
    "one_step": (
        GRID + "    vary: {depth: {from: 1, to: 8, steps: 1}}\n",
        "steps must be a whole number of at least 2",
    ),
    "too_many_steps": (GRID + "    vary: {depth: {from: 1, to: 8, steps: 9}}\n", "fewer than 9 values from 1 to 8"),
    "huge_grid": (
        GRID + f"    vary: {{width: {WIDE}, inputs: {WIDE}}}\n",
        ":5: workloads[0].vary: this grid has ",
    ),
    "grid_with_count": (
        GRID + "    count: 3\n",
        ":5: workloads[0].count: a grid takes all its points; leave the count",
    ),
    "count_missing": (RANDOM.replace("    count: 3\n", ""), ".count: is missing; random needs to know how many points"),
    "count_of_zero": (RANDOM.replace("3", "0"), ":5: workloads[0].count: must be at least 1, not 0"),
    "count_too_large": (RANDOM.replace("3", "200000"), ":5: workloads[0].count: must be at most 100000, not 200000"),
    "nothing_varies": (RANDOM, ".vary: is missing; random needs at least one number that varies"),
    "varied_and_fixed": (
        GRID + "    vary: {depth: [1, 2, 3]}\n    fix: {depth: 4}\n",
        ":5: workloads[0].vary.depth: cannot vary, since it is also under fix",
    ),
    "layer_that_is_not_there": (
        CONVOLUTIONAL + "    vary: {conv4: [8, 16, 32]}\n    fix: {convolutions: 3}\n",
        ":5: workloads[0].vary.conv4: makes no difference to any point of this entry; leave it out",
    ),
    "optimizer_of_inference": (
        GRID + "    fix: {mode: inference, optimizer: adam}\n",
        ".optimizer: makes no difference",
    ),
    "format_without_images": (GRID + "    fix: {memory_format: channels_last}\n", "mlp takes no images, and only they"),
    "only_giants": (
        GRID + "    fix: {width: 16384, depth: 64}\n",
        ":3: workloads[0]: no point is left: every network would have more than 2,000,000,000 parameters",
    ),
    "unknown_layer": (
        GRID + "layers: {count: 3, kinds: [liner]}\n",
        ":5: layers.kinds[0]: there is no layer 'liner'; did",
    ),
    "layers_without_count": (GRID + "layers: {kinds: [linear]}\n", ":5: layers.count: is missing"),
    "misspelt_layers": (
        GRID + "layers: {count: 3, element: 4096}\n",
        ":5: layers.element: there is no such field here; did",
    ),
    "layers_too_large": (
        GRID + "layers: {count: 3, elements: 1000000000}\n",
        ":5: layers.elements: must be at most 134",
    ),
    "no_limit": (GRID + "limit: 0 s\n", ":5: limit: must be "),
    "negative_budget": (GRID + "budget: -5 min\n", ":5: budget: must be a time with its unit, such as 90 s, 10 min, "),
    "budget_without_unit": (GRID + "budget: 600\n", ":5: budget: must be a time with its unit"),
    "no_budget": (GRID + "budget: 0 min\n", ":5: budget: must be more than 0"),
    "no_steps": (GRID + "steps: 0\n", ":5: steps: must be at least 1, not 0"),
    "no_repetitions": (GRID + "repetitions: 0\n", ":5: repetitions: must be at least 1, not 0"),
    "negative_seed": (GRID + "seed: -1\n", ":5: seed: must be at least 0, not -1"),
    "kernels_as_text": (GRID + "kernels: 'yes'\n", ":5: kernels: must be true or false, not 'yes'"),
    "vary_as_list": (GRID + "    vary: [depth]\n", ":5: workloads[0].vary: must be a mapping"),
    "broken_yaml": ("name: [a\n", "not valid YAML"),
    "list_on_top": ("- a\n", ":1: must be a mapping"),
    "empty": ("", "the file is empty"),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(content)
    with pytest.raises(InvalidFile) as caught:
        read_campaign(path)
    assert message in caught.value.message
    assert caught.value.message.startswith(str(path))
    assert "\n" not in caught.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no such file: .*missing\.yaml"):
        find_campaign(tmp_path / "missing.yaml")
