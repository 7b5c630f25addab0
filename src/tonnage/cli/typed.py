"""Which options were typed, and not only have their default: they win over files, or contradict them."""

from __future__ import annotations

import typer


def typed_options(context: typer.Context) -> frozenset[str]:
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return frozenset(name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE")
