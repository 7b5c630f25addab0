"""The published JSON Schema is valid, up to date, and agrees with the reader."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from tonnage.hardware.schema import published_schema, schema_text

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.yaml"


def test_the_published_schema_is_what_the_models_say() -> None:
    assert published_schema() == schema_text(), "run python -m tonnage.hardware.schema"


def test_the_schema_is_valid_json_schema_2020_12() -> None:
    schema = json.loads(published_schema())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


def test_every_field_has_a_description() -> None:
    schema = json.loads(published_schema())
    sections = [schema, *schema["$defs"].values()]
    assert all("description" in field for section in sections for field in section["properties"].values())


def test_the_example_passes_the_schema() -> None:
    jsonschema.validate(yaml.safe_load(EXAMPLE.read_text()), json.loads(published_schema()))


@pytest.mark.parametrize("memory", [64, "64", "64 GiB/s", "-1 GiB"])
def test_the_schema_wants_units_too(memory: object) -> None:
    content = {"nodes": [{"name": "a", "cpu": {"cores": 1}, "memory": memory}]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, json.loads(published_schema()))
