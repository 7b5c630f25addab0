"""A rules file with an error is refused with file, line and field."""

from pathlib import Path

import pytest

from tonnage.errors import InvalidFile, NotFound
from tonnage.service.files import read_images, read_rules

GOOD = """version: "1"
rules:
  - name: order
    when: []
    then: {order: [speed]}
    reason: always
"""


def refusal(folder: Path, text: str) -> str:
    file = folder / "rules.yaml"
    file.write_text(text)
    with pytest.raises(InvalidFile) as error:
        read_rules(file)
    return error.value.message.replace(str(folder), "")


def with_rule(rule: str) -> str:
    return GOOD + rule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: 1\nrules: []\n", "/rules.yaml:1: version: must be text, not 1; put it in quotes"),
        ('version: "1"\nrules: []\n', "/rules.yaml:2: rules: must not be empty"),
        (GOOD.replace("speed", "sped"), "/rules.yaml:5: rules[0].then.order[0]: must be 'speed'"),
        (GOOD.replace("[speed]}", "[speed], socket: all}"), "then.socket: there is no such field here; did you mean"),
        (GOOD.replace("when: []", "when: [{field: forward_second, below: 1}]"), "did you mean forward_seconds?"),
        (GOOD.replace("when: []", "when: [{field: steps_seconds}]"), "rules[0].when[0].field: rules know no field"),
        (GOOD.replace("when: []", "when: [{field: step_seconds}]"), "/rules.yaml:4: rules[0].when[0]: says neither"),
        (GOOD.replace("when: []", "when: [{field: step_seconds, at_least: 2, below: 1}]"), "at least 2 and below 1"),
        (GOOD.replace("when: []", "when: [{field: step_seconds, below: .nan}]"), "rules[0].when[0].below"),
        (GOOD.replace("when: []", "when: [{field: step_seconds, below: 1}]"), "no rule gives an order in all cases"),
        (GOOD.replace("{order: [speed]}", "{}"), "/rules.yaml:5: rules[0].then: nothing follows"),
        (GOOD.replace("{order: [speed]}", "{order: [speed], cpu_cores: {field: x}}"), "rules[0].then.cpu_cores.field"),
        (GOOD.replace("{order: [speed]}", "{order: [speed], cpu_cores: -1}"), "cpu_cores.plus: must be at least 0"),
        (GOOD + GOOD.partition("rules:\n")[2], "/rules.yaml:7: rules[1].name: another rule is called 'order' already"),
        ("version: [\n", "/rules.yaml:2: not valid YAML"),
    ],
)  # fmt: skip
def test_an_error_names_file_line_and_field(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(tmp_path, text)


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_rules(tmp_path / "none.yaml")


def test_a_good_file_replaces_the_preset_rules(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(GOOD)
    assert [rule.name for rule in read_rules(file).rules] == ["order"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('digest: "sha256:xyz"', "images[0].digest: must be sha256: and 64 hexadecimal digits"),
        ("format: tar", "images[0].format: 'tar' is not among the formats oci"),
        ("reference: UPPER", "images[0].reference: must look like registry/name:tag"),
        ('cuda: "twelve"', "images[0].cuda: must be a version such as 12.8"),
    ],
)
def test_an_error_in_the_image_catalogue_is_named(tmp_path: Path, line: str, message: str) -> None:
    fields = {
        "reference": "example.org/a:1", "framework": "torch", "framework_version": '"2.0"', "cuda": '"12.0"',
        "driver": '"525"', "compute_capability": '{at_least: "7.0", at_most: "9.0"}', "format": "oci",
    }  # fmt: skip
    name, _, value = line.partition(": ")
    body = ", ".join(f"{key}: {text}" for key, text in (fields | {name: value}).items())
    file = tmp_path / "images.yaml"
    file.write_text(f'version: "1"\nformats: [oci]\nimages:\n  - {{{body}}}\n')
    with pytest.raises(InvalidFile) as error:
        read_images(file)
    assert message in error.value.message
