"""The page about the command line says what the command line takes."""

from pathlib import Path

from tonnage.cli.reference import page

WRITTEN = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    assert WRITTEN.read_text() == page(), "run: python -m tonnage.cli.reference > docs/reference/cli.md"


def test_commands_below_commands_have_sections_too() -> None:
    assert "## `tonnage cluster check`" in page()


def test_every_option_is_explained() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.endswith("|  |")] == []
