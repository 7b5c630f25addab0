"""The page about sample workloads says what the families say."""

from pathlib import Path

from tonnage.benchmark.workloads.reference import page

WRITTEN = Path(__file__).parents[2] / "docs" / "reference" / "workloads.md"


def test_the_page_is_up_to_date() -> None:
    command = "python -m tonnage.benchmark.workloads.reference > docs/reference/workloads.md"
    assert WRITTEN.read_text() == page(), f"run: {command}"


def test_every_number_is_explained() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.endswith("|  |")] == []
