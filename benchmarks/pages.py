"""What the scripts have in common that write a page of the docs from the newest rows of others."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs" / "reference"
Row = dict[str, Any]


def newest_rows(folder: Path, name: str) -> list[Row]:
    """Of the newest day, in the results of a folder of benchmarks."""
    newest = max((folder / "results").glob(f"{name}-*.jsonl"))
    return [json.loads(line) for line in newest.read_text().splitlines()]


def write_page(about: str | None, name: str, render: Callable[[], str]) -> None:
    """To the screen, or with `--write` to the docs."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"to {name} instead of the screen")
    if parser.parse_args().write:
        (DOCS / name).write_text(render())
    else:
        print(render(), end="")
