"""Files during a capture: the program may read everything and write nothing.

What it writes goes to a scratch layer that is thrown away; what it reads comes from there if it wrote it before. This
covers Python's own file functions, through which practically all training code writes. Folders that an overlay covers
(`isolation.py`) are left alone.
"""

from __future__ import annotations

import builtins
import errno
import importlib
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tonnage.program.isolation import COVERED

_PASS_THROUGH = ("/dev/", "/proc/", "/sys/")


class ScratchLayer:
    """Takes all writes into a folder below `folder`, which itself stays as it is; deletions are only remembered."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder / "scratch")
        covered = (place + os.sep for place in os.environ.get(COVERED, "").split(os.pathsep) if place)
        self._free_to_use = (*_PASS_THROUGH, str(folder) + os.sep, *covered)
        os.makedirs(self._folder, exist_ok=True)
        self._gone: set[str] = set()
        self._os_stat, self._os_mkdir, self._os_open = os.stat, os.mkdir, os.open
        self._os_listdir, self._os_scandir, self._os_chdir = os.listdir, os.scandir, os.chdir
        self._os_getcwd = os.getcwd
        self._cwd: str | None = None  # where the program believes to be, if that folder is only in the scratch layer
        self._open = io.open

    def install(self) -> None:
        builtins.open = io.open = self._patched_open
        os.open = self._patched_os_open
        for name in ("stat", "lstat", "access", "readlink", "statvfs", "listxattr", "getxattr"):
            if hasattr(os, name):
                setattr(os, name, self._reading(getattr(os, name), copies=False))
        for name in ("chmod", "chown", "utime", "truncate", "setxattr", "removexattr"):
            if hasattr(os, name):
                setattr(os, name, self._reading(getattr(os, name), copies=True))
        os.listdir, os.scandir = self._listdir, self._scandir  # type: ignore[assignment]
        os.chdir, os.getcwd = self._chdir, self._getcwd
        os.mkdir = self._creating(os.mkdir)
        for name in ("remove", "unlink", "rmdir"):
            setattr(os, name, self._removing(getattr(os, name)))
        for name in ("rename", "replace", "link", "symlink"):
            setattr(os, name, self._moving(getattr(os, name)))
        # With descriptors of folders, files could be reached past this layer.
        shutil._use_fd_functions = False  # type: ignore[attr-defined]
        for known in (os.supports_dir_fd, os.supports_fd):
            known.clear()
        importlib.reload(tempfile)  # it keeps os.unlink as the default of an argument

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
        if full in self._gone:
            return self._folder + "/gone" + full
        return path if self._cwd is None else full

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

    def _listdir(self, path: Any = ".") -> list[Any]:
        full = self._absolute(path)
        if full is None:
            return self._os_listdir(path)
        names = [entry.name for entry in self._scandir(full)]
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def _scandir(self, path: Any = ".") -> Any:
        """What is really there, less what was deleted, and what was written."""
        full = self._absolute(path)
        shadow = None if full is None else self._folder + full
        if full is None or shadow is None or not (self._exists(shadow) or self._gone):
            return self._os_scandir(path)
        written = set(self._os_listdir(shadow)) if self._exists(shadow) else set()
        hidden = written | {os.path.basename(gone) for gone in self._gone if os.path.dirname(gone) == full}
        entries: list[Any] = [_Entry(os.fsdecode(path), name) for name in sorted(written)]
        if full in self._gone or not self._exists(full):
            return _Entries(entries) if self._exists(shadow) else self._os_scandir(self._folder + "/gone" + full)
        with self._os_scandir(full if self._cwd is not None else path) as real:
            entries += [entry for entry in real if os.fsdecode(entry.name) not in hidden]
        return _Entries(entries)

    def _chdir(self, path: Any) -> None:
        full = self._absolute(path)
        if full is None:
            self._os_chdir(path)
        elif full not in self._gone and self._exists(full):
            self._os_chdir(full)
            full = None
        else:
            self._os_chdir(self._folder + full)
        self._cwd = full

    def _getcwd(self) -> str:
        return self._cwd or self._os_getcwd()

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
            is_real = full is None or (full not in self._gone and self._exists(full))
            if not kept and is_real and os.path.isdir(source):
                return _move_folder(source, target, original if full is None else None)
            where = source if original.__name__ == "symlink" else self._to_write(source, copy=True)
            result = original(where, self._to_write(target), *args, **kwargs)
            if full is not None and not kept:
                self._gone.add(full)
            return result

        return function


def _move_folder(source: Any, target: Any, rename: Callable[..., Any] | None) -> None:
    """Folders that are really there cannot be renamed, neither into the scratch layer nor within an overlay."""
    try:
        if rename is not None:
            rename(source, target)
            return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(source)


class _Entry(os.PathLike[str]):
    """What `os.scandir` says of a file that the program wrote."""

    def __init__(self, folder: str, name: str) -> None:
        self.name, self.path = name, os.path.join(folder, name)

    def __fspath__(self) -> str:
        return self.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self.stat(follow_symlinks=follow_symlinks).st_mode)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISREG(self.stat(follow_symlinks=follow_symlinks).st_mode)

    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self.stat(follow_symlinks=False).st_mode)


class _Entries:
    """An iterator over entries that can be closed, as that of `os.scandir`."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries: Iterator[Any] = iter(entries)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())
