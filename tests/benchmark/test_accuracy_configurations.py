"""The accuracy benchmark's list of configurations; the programs themselves need a GPU and are not run here."""

import argparse
import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "accuracy"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_blind() -> ModuleType:
    """It takes the other list's module by its name, which no other test should find."""
    sys.modules["configurations"] = configurations
    try:
        return load("blind_configurations")
    finally:
        del sys.modules["configurations"]


configurations = load("configurations")
blind = load_blind()
EVERY = configurations.CONFIGURATIONS + blind.BLIND_CONFIGURATIONS
TINY = [
    (FOLDER / folder / program, arguments)
    for folder, programs in (("programs", configurations.TINY), ("blind", blind.TINY))
    for program, variants in programs.items()
    for arguments in variants
]


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]  # raises instead of leaving the interpreter
        raise AssertionError(message)


def parser_of(program: Path) -> Parser:
    """The program's parser rebuilt from its source, because importing a script would run it."""
    tree = ast.parse(program.read_text())
    tables = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    parser = Parser()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            options = [ast.literal_eval(argument) for argument in node.args]
            parser.add_argument(*options, **keywords_of(node, tables))
    return parser


def keywords_of(call: ast.Call, tables: dict[str, ast.expr]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg == "type" and isinstance(keyword.value, ast.Name):
            kept["type"] = {"int": int, "float": float}[keyword.value.id]
        elif keyword.arg == "choices":
            kept["choices"] = choices_of(keyword.value, tables)
        elif keyword.arg in ("nargs", "action", "dest", "default"):
            kept[keyword.arg] = ast.literal_eval(keyword.value)
    return kept


def choices_of(value: ast.expr, tables: dict[str, ast.expr]) -> list[str]:
    if isinstance(value, ast.Call):  # list(TABLE)
        value = value.args[0]
    if isinstance(value, ast.Name):
        value = tables[value.id]
    items = value.keys if isinstance(value, ast.Dict) else value.elts  # type: ignore[attr-defined]
    return [ast.literal_eval(item) for item in items if item is not None]


def test_names_are_unique() -> None:
    names = [configuration.name for configuration in EVERY]
    assert len(set(names)) == len(names)


def test_there_are_enough_of_both_parts() -> None:
    splits = [configuration.split for configuration in configurations.CONFIGURATIONS]
    assert set(splits) == {"tune", "test"}
    assert len(splits) >= 110
    assert 0.3 <= splits.count("test") / len(splits) <= 0.4


def test_no_program_is_both_tuned_on_and_tested_on() -> None:
    assert not set(configurations.TUNE) & set(configurations.TEST)


def test_every_program_file_is_used_and_has_a_tiny_version() -> None:
    files = {path.name for path in (FOLDER / "programs").glob("*.py")}
    assert files == set(configurations.TUNE) | set(configurations.TEST)
    assert files == set(configurations.TINY)


def test_blind_programs_are_a_set_of_their_own() -> None:
    files = {path.name for path in (FOLDER / "blind").glob("*.py")}
    assert files == set(blind.BLIND)
    assert files == set(blind.TINY)
    assert not files & {path.name for path in (FOLDER / "programs").glob("*.py")}
    assert {configuration.split for configuration in blind.BLIND_CONFIGURATIONS} == {"blind"}


@pytest.mark.parametrize("configuration", EVERY, ids=lambda c: c.name)
def test_the_program_takes_the_arguments(configuration: Any) -> None:
    parsed = parser_of(configuration.path).parse_args([*configuration.arguments, "--steps", "3"])
    assert parsed.steps == 3
    assert parsed.batch_size > 0


@pytest.mark.parametrize(("program", "arguments"), TINY, ids=lambda value: getattr(value, "name", ""))
def test_the_program_takes_its_tiny_arguments(program: Path, arguments: str) -> None:
    parser_of(program).parse_args([*arguments.split(), "--steps", "2"])
