"""The shape of the code: imports point inward, heavy packages are imported late."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tonnage"
# A room may import from rooms of its own depth or less; see docs/explanation/architecture.md.
DEPTH = {
    "errors": 0, "units": 0, "bounded_server": 0, "verbs": 0, "hardware": 0, "program": 1, "store": 2, "estimate": 2,
    "benchmark": 3, "profile": 3, "configure": 4, "allocate": 4, "split": 4, "engines": 5, "stages": 5, "serve": 5,
    "api": 5, "planning": 5, "service": 6, "cli": 7, "__main__": 7,
}  # fmt: skip
PURE = ("estimate", "allocate", "split", "configure")


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return {name.split(".")[1] for name in names if name.startswith("tonnage.")}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_inward(path: Path) -> None:
    room = room_of(path)
    if room != "__init__":
        assert all(DEPTH[other] <= DEPTH[room] for other in imported_rooms(path)), imported_rooms(path)


@pytest.mark.parametrize("path", [p for p in modules() if room_of(p) in PURE], ids=lambda path: path.name)
def test_pure_rooms_do_no_input_or_output(path: Path) -> None:
    imports = {
        n.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import) for n in node.names
    }
    assert not imports & {"os", "subprocess", "socket", "time", "random", "requests", "tempfile", "shutil"}


@pytest.mark.parametrize("command", ["import tonnage", "import tonnage.cli.main"])
def test_importing_the_package_loads_nothing_heavy(command: str) -> None:
    heavy = ("torch", "numpy", "pydantic", "onnx", "fastapi", "sqlalchemy", "alembic", "pyarrow")
    code = f"{command}; import sys; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
