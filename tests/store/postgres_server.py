"""A PostgreSQL server of our own for the tests: in a temporary folder, on a free port, gone afterwards."""

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import psycopg

USER, PASSWORD = "tonnage", "se/cr@t word"


class PostgresServer:
    """Started with its construction; `stop` ends it and removes its folder."""

    def __init__(self, binaries: Path) -> None:
        self._owner = _unprivileged_user()
        # Not below pytest's own folder, which only its owner may enter.
        self._folder = Path(tempfile.mkdtemp(prefix="tonnage-postgres-"))
        self._numbers = itertools.count()
        self.port = _free_port()
        (self._folder / "password").write_text(PASSWORD)
        if self._owner:
            for path in (self._folder, self._folder / "password"):
                shutil.chown(path, self._owner)
        try:
            self._process = self._start(binaries)
            self._wait()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _start(self, binaries: Path) -> "subprocess.Popen[bytes]":
        data = self._folder / "data"
        secret = f"--pwfile={self._folder / 'password'}"
        made = self._run([binaries / "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", secret, "-E", "UTF8"])
        if made.wait(120) != 0:
            raise RuntimeError(f"initdb failed: {(self._folder / 'log').read_text()}")
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-k", "", "-c", "fsync=off"]
        return self._run([binaries / "postgres", "-D", data, *options])

    def _run(self, command: list[str | Path]) -> "subprocess.Popen[bytes]":
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", user=self._owner, group=self._owner,
                extra_groups=[] if self._owner else None,
            )  # fmt: skip

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.05)

    def url(self, database: str) -> str:
        return f"postgresql://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)  # "fast": ends connections that are still open
        self._process.wait(60)
        shutil.rmtree(self._folder)


def find_binaries() -> Path | None:
    """The folder with Debian's newest server programs, or what PATH offers."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
