"""`tonnage serve schema` and `tonnage serve containerfile`: what service files are, and the image of one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def schema_command() -> None:
    """Print the JSON Schema of service files, for editors."""
    from tonnage.serve.service_schema import published_schema

    typer.echo(published_schema(), nl=False)


def containerfile_command(
    file: Annotated[Path, typer.Argument(help="The service file, such as service.yaml.")],
    folder: Annotated[Path, typer.Option(help="Where to write it; it must not be there yet.")] = Path("build"),
    models: Annotated[
        Path | None, typer.Option(help="A folder of models to put into the image, where the file says image:/PATH.")
    ] = None,
) -> None:
    """Write all that podman build or docker build needs to make the image of a service, for a cluster."""
    from tonnage.serve.service_file import read_service
    from tonnage.serve.service_image import write_image_files

    write_image_files(read_service(file), folder, models)
    typer.echo(f"podman build --tag IMAGE {folder}")
