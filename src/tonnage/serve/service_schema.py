"""The JSON Schema of service.yaml. `python -m tonnage.serve.service_schema` writes it anew after a change of the models."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

SCHEMA_FILE = "service.schema.json"


def schema_text() -> str:
    """The schema as the models define it, and as it stands in the file."""
    from tonnage.serve.service_models import ServiceFile

    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:tonnage:service.schema.json",
        **ServiceFile.model_json_schema(),
        "title": "Tonnage service file",
    }
    return json.dumps(head, indent=2) + "\n"


def published_schema() -> str:
    """The schema that the package carries."""
    return resources.files("tonnage.serve").joinpath(SCHEMA_FILE).read_text("utf-8")


if __name__ == "__main__":
    Path(__file__).with_name(SCHEMA_FILE).write_text(schema_text(), "utf-8")
