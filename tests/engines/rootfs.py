"""A container image without a registry: the Python that runs the tests, the libraries it needs, and nothing else."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

# One for each process of tests: when they are over, it is removed with all that was built on it.
IMAGE = f"localhost/tonnage-test-python:{os.getpid()}"
# What no program of the tests imports, and what makes most of the size.
_LEFT_OUT = re.compile(
    r"(^|/)(__pycache__|test|tests|idlelib|tkinter|turtledemo|ensurepip|lib2to3|pydoc_data|site-packages|dist-packages"
    r"|config-[^/]*|distutils|sqlite3|EXTERNALLY-MANAGED)(/|$)|\.(a|pyc)$"
)


def write_rootfs(path: Path) -> Path:
    """A tar archive that `podman import` takes; Python is at /usr/bin/python3."""
    python, library = Path(sys.executable).resolve(), Path(sysconfig.get_paths()["stdlib"])
    extensions = sorted((library / "lib-dynload").glob("*.so"))
    with tarfile.open(path, "w") as archive:
        for folder in ("tmp", "proc", "sys", "dev", "etc", "run", "app"):
            _add_folder(archive, folder)
        _add_text(archive, "etc/passwd", "root:x:0:0::/:/bin/false\nnobody:x:65534:65534::/tmp:/bin/false\n")
        for needed in sorted(libraries_of([python, *extensions])):
            archive.add(needed.resolve(), arcname=str(needed).lstrip("/"))
        archive.add(python, arcname="usr/bin/python3")
        archive.add(library, arcname=str(library).lstrip("/"), filter=_wanted)
    return path


def python_home() -> str:
    """Where the image's Python must be told to look: it is not where it was compiled to be."""
    return sys.base_prefix


def libraries_of(binaries: list[Path]) -> set[Path]:
    """Shared libraries by the names under which the loader looks for them, the loader included."""
    listed = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=False).stdout
    return {Path(found) for found in re.findall(r"(/[^\s:()]+\.so[^\s:()]*)(?= \()", listed)}


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _LEFT_OUT.search(entry.name.partition("python3.")[2]) else entry


def _add_folder(archive: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    archive.addfile(entry)


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(text)
    archive.addfile(entry, io.BytesIO(text.encode()))
