"""Files during a capture: the program may read everything and write nothing.

What it writes goes to a scratch layer that is thrown away; what it reads comes from there if it wrote it before. This
covers Python's own file functions, through which practically all training code writes.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PASS_THROUGH = ("/dev/", "/proc/", "/sys/")


class ScratchLayer:
    """Takes all writes into a folder below `folder`, which itself stays as it is; deletions are only remembered."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder / "scratch")
        self._free_to_use = (*_PASS_THROUGH, str(folder) + os.sep)
        os.mkdir(self._folder)
        self._gone: set[str] = set()
        self._os_stat, self._os_mkdir, self._os_open = os.stat, os.mkdir, os.open
        self._open = io.open

    def install(self) -> None:
        builtins.open = io.open = self._patched_open
        os.open = self._patched_os_open
        for name in (
            "stat",
            "lstat",
            "access",
            "listdir",
            "scandir",
            "chmod",
            "utime",
            "readlink",
            "truncate",
            "chdir",
        ):
            setattr(os, name, self._reading(getattr(os, name), copies=name in ("chmod", "utime", "truncate")))
        os.mkdir = self._creating(os.mkdir)
        for name in ("remove", "unlink", "rmdir"):
            setattr(os, name, self._removing(getattr(os, name)))
        for name in ("rename", "replace", "link", "symlink"):
            setattr(os, name, self._moving(getattr(os, name)))
        # With descriptors of folders, files could be reached past this layer.
        shutil._use_fd_functions = False  # type: ignore[attr-defined]
        for known in (os.supports_dir_fd, os.supports_fd):
            known.clear()

    # -- where things are ---------------------------------------------------------------------------------------------

    def _absolute(self, path: Any) -> str | None:
        """The absolute path, or None for what is none of our business (descriptors, devices, the scratch itself)."""
        if isinstance(path, int) or path is None:
            return None
        text = os.fsdecode(os.fspath(path))
        full = os.path.abspath(text)
        return None if full.startswith(self._free_to_use) else full

    def _exists(self, path: str) -> bool:
        try:
            self._os_stat(path)
        except OSError:
            return False
        return True

    def _to_read(self, path: Any) -> Any:
        full = self._absolute(path)
        if full is None:
            return path
        shadow = self._folder + full
        if self._exists(shadow):
            return shadow
        return self._folder + "/gone" + full if full in self._gone else path

    def _to_write(self, path: Any, copy: bool = False) -> Any:
        full = self._absolute(path)
        if full is None:
            return path
        shadow = self._folder + full
        parent = os.path.dirname(full)
        if self._exists(parent) and parent not in self._gone:
            self._make_folders(self._folder + parent)
        if copy and not self._exists(shadow) and os.path.isfile(path) and full not in self._gone:
            with self._open(full, "rb") as source, self._open(shadow, "wb") as target:
                shutil.copyfileobj(source, target)
        self._gone.discard(full)
        return shadow

    def _make_folders(self, folder: str) -> None:
        if not self._exists(folder):
            self._make_folders(os.path.dirname(folder))
            self._os_mkdir(folder)

    # -- the functions ------------------------------------------------------------------------------------------------

    def _patched_open(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if any(letter in mode for letter in "wax+"):
            return self._open(self._to_write(file, copy="w" not in mode), mode, *args, **kwargs)
        return self._open(self._to_read(file), mode, *args, **kwargs)

    def _patched_os_open(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        where = self._to_write(path, copy=not flags & os.O_TRUNC) if writes else self._to_read(path)
        return self._os_open(where, flags, *args, **kwargs)

    def _reading(self, original: Callable[..., Any], copies: bool) -> Callable[..., Any]:
        def function(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            return original(self._to_write(path, copy=True) if copies else self._to_read(path), *args, **kwargs)

        return function

    def _creating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def function(path: Any, *args: Any, **kwargs: Any) -> Any:
            full = self._absolute(path)
            if full is not None and full not in self._gone and self._exists(full):
                raise FileExistsError(17, "File exists", str(path))
            return original(self._to_write(path), *args, **kwargs)

        return function

    def _removing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def function(path: Any, *args: Any, **kwargs: Any) -> Any:
            full = self._absolute(path)
            if full is None:
                return original(path, *args, **kwargs)
            shadow = self._folder + full
            if self._exists(shadow):
                original(shadow)
            elif full in self._gone or not self._exists(full):
                raise FileNotFoundError(2, "No such file or directory", str(path))
            self._gone.add(full)
            return None

        return function

    def _moving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def function(source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            full = self._absolute(source)
            kept = original.__name__ in ("link", "symlink")
            where = source if kept and original.__name__ == "symlink" else self._to_write(source, copy=True)
            result = original(where, self._to_write(target), *args, **kwargs)
            if full is not None and not kept:
                self._gone.add(full)
            return result

        return function
