"""Where engines keep what they must remember between commands, and files that are replaced as a whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tonnage.errors import InvalidFile, UsageError

VARIABLE = "TONNAGE_STATE"


def state_folder() -> Path:
    """`TONNAGE_STATE`, else the user's own folder for such things. Readable by nobody else: jobs' logs are in it."""
    asked = os.environ.get(VARIABLE)
    if asked:
        folder = Path(asked).expanduser().absolute()
    else:
        from platformdirs import user_state_path

        folder = user_state_path("tonnage", appauthor=False)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UsageError(f"{folder} cannot be used: {error.strerror}", f"{VARIABLE} names another folder") from None
    return folder


def write_json(path: Path, document: object) -> None:
    """Readers see the old file or the new one, never half of one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(fresh, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            json.dump(document, file, indent=1)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any:
    """The document, or None if the file is not there."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise InvalidFile(f"{path} is damaged: {error}", f"rm {path}") from None
