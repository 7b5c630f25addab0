"""Starts a command so that nothing it writes stays: `python isolation.py SCRATCH SCRIPT_FOLDER COMMAND ...`; without a
command it only tells, by its exit status, whether that is possible here.

Python's own file functions are diverted inside the captured process (`virtual_gpu/files.py`), on any system. What passes
them by (databases, compiled libraries, commands that the program starts) is caught here, where Linux lets a user do so:
overlays in a mount namespace of the process's own take the writes to the folders that a program usually writes to, and
Landlock refuses all others. Where that is not possible the command runs as it is.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys

COVERED = "TONNAGE_COVERED"  # tells the command which folders it may write to
_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_RECURSIVE, _PRIVATE = 0x4000, 1 << 18
_NO_NEW_PRIVILEGES, _DIE_WITH_PARENT = 38, 1
# Landlock's rights (linux/landlock.h, first version): all but execute, read file, read directory change something.
_ALL_RIGHTS, _READING = (1 << 13) - 1, 0b1101
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_libc = ctypes.CDLL(None, use_errno=True)


def isolate(scratch: str, folders: list[str]) -> None:
    """Divert writes below `folders` to `scratch` and refuse those elsewhere; raises OSError if that is not possible."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        raise OSError("no namespaces here")
    here, user, group = os.getcwd(), os.geteuid(), os.getegid()
    if user != 0 or _libc.unshare(_NEW_MOUNTS) != 0:
        _checked(_libc.unshare(_NEW_MOUNTS | _NEW_USER))
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _mount("none", "/", "", _RECURSIVE | _PRIVATE, "")
    for number, folder in enumerate(folders):
        upper, work = (os.path.join(scratch, f"{kind}{number}") for kind in ("upper", "work"))
        os.makedirs(upper)
        os.makedirs(work)
        options = f"lowerdir={folder},upperdir={upper},workdir={work},userxattr"
        _mount("overlay", folder, "overlay", 0, options)
    os.chdir(here)  # the same name, but now below the overlay
    _refuse_writes_except([*folders, scratch, "/dev", "/proc"])


def outermost(folders: list[str], scratch: str) -> list[str]:
    """Folders that are not inside one another; one that holds the scratch folder, or everything, cannot be covered."""
    kept: list[str] = []
    for folder in sorted({os.path.realpath(folder) for folder in folders}, key=len):
        holds_scratch = f"{scratch}/".startswith(folder.rstrip("/") + "/")
        inside = any(folder.startswith(other + "/") for other in kept)
        if not holds_scratch and not inside and os.access(folder, os.W_OK) and not set(folder) & set(",:\\"):
            kept.append(folder)
    return kept


def _refuse_writes_except(folders: list[str]) -> None:
    rights = struct.pack("Q", _ALL_RIGHTS & ~_READING)
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, rights, len(rights), 0))
    for folder in folders:
        place = os.open(folder, os.O_PATH)
        rule = struct.pack("=Qi", _ALL_RIGHTS & ~_READING, place)
        _checked(_libc.syscall(_ADD_RULE, ruleset, 1, rule, 0))
        os.close(place)
    _checked(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    texts = (text.encode() or None for text in (source, target, kind))
    _checked(_libc.mount(*texts, ctypes.c_ulong(flags), options.encode() or None))


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def main() -> int:
    scratch, script_folder, *command = sys.argv[1:]
    wanted = [os.getcwd(), os.path.expanduser("~"), *([script_folder] if script_folder else [])]
    folders = outermost(wanted, scratch)
    refusal: OSError | None = None
    try:
        isolate(scratch, folders)
        os.environ[COVERED] = os.pathsep.join(folders)
    except OSError as error:
        refusal = error
    if command:
        if sys.platform == "linux":
            _libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        os.execv(command[0], command)
    if refusal is not None:
        print(refusal)
    return int(refusal is not None)


if __name__ == "__main__":
    sys.exit(main())
