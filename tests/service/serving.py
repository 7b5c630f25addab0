"""A configuration server in this process, and commands as users type them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from placing import KEY, NOW, example_cluster, indicators

from tonnage.service.app import create_app
from tonnage.service.configurator import Configurator
from tonnage.service.files import read_images, read_rules, rules_text
from tonnage.store.database import Database


def configurator(database: Database, clock: Callable[[], float] = lambda: NOW) -> Configurator:
    return Configurator(
        name="laboratory", private_key=KEY, cluster=example_cluster(), rules=read_rules(), images=read_images(),
        database=database, clock=clock,
    )  # fmt: skip


def client(database: Database) -> TestClient:
    return TestClient(create_app(configurator(database), rules_text()), raise_server_exceptions=False)


def body(**changes: Any) -> dict[str, Any]:
    return {"indicators": indicators(**changes).as_dict()}


def script(folder: Path) -> Path:
    file = folder / "train.py"
    file.write_text("print('training')\n")
    return file


def tonnage(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tonnage", *words]
    environment = os.environ | {"NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
