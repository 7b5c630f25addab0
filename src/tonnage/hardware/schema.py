"""The JSON Schema of cluster.yaml. `python -m tonnage.hardware.schema` writes it anew after a change of the models."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

SCHEMA_FILE = "cluster.schema.json"


def cluster_schema() -> dict[str, Any]:
    """The schema as the models define it."""
    from tonnage.hardware.cluster_models import ClusterFile

    schema = ClusterFile.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:tonnage:cluster.schema.json",
        **schema,
        "title": "Tonnage cluster file",
    }


def schema_text() -> str:
    """The schema as it stands in the file."""
    return json.dumps(cluster_schema(), indent=2) + "\n"


def published_schema() -> str:
    """The schema that the package carries."""
    return resources.files("tonnage.hardware").joinpath(SCHEMA_FILE).read_text("utf-8")


if __name__ == "__main__":
    Path(__file__).with_name(SCHEMA_FILE).write_text(schema_text(), "utf-8")
