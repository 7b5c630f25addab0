"""The command line clients `podman` and `docker`: run without a shell, answers read as JSON, errors told apart."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from tonnage.engines.folders import state_folder
from tonnage.errors import DoesNotFit, NotFound, TonnageError, Unreachable, UsageError

_ANSWER_SECONDS = 60.0
_BUILD_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Where the clients differ."""

    command: str
    build: tuple[str, ...]  # never fetch anything by itself
    build_one_layer: tuple[str, ...]  # where there is nothing that a cache could find again
    info: tuple[str, ...]
    cores: tuple[str, ...]  # where the answer has them
    memory_bytes: tuple[str, ...]
    start_it: str
    health_words: bool = False  # a health check may be a list of words, which needs no shell in the image
    remote: str = ""  # without this variable, the machine behind the client is this one


PODMAN = Dialect(
    command="podman",
    build=("--pull=never", "--format=oci"),
    build_one_layer=("--layers=false",),
    info=("info", "--format", "json"),
    cores=("host", "cpus"),
    memory_bytes=("host", "memTotal"),
    start_it="`podman info` tells what is wrong",
    health_words=True,
    remote="CONTAINER_HOST",
)
DOCKER = Dialect(
    command="docker",
    build=("--pull=false",),
    build_one_layer=(),
    info=("info", "--format", "{{json .}}"),
    cores=("NCPU",),
    memory_bytes=("MemTotal",),
    start_it="start it, for example: systemctl start docker",
)

# The words of the clients (podman 4.3 to 5, docker 28) for what users can do something about.
_MEANINGS: tuple[tuple[str, type[TonnageError], str], ...] = (
    (r"cannot connect to|is the docker daemon running|connection refused|permission denied.*\.sock", Unreachable, ""),
    (r"no such (container|object)|no container with name", NotFound, ""),
    (r"image not known|no such image|unable to find image|manifest unknown", NotFound, "build or pull the image first"),
    (r"address already in use|port is already allocated", UsageError, "the port is taken: choose another one with --port"),
    (r"name .* is (already )?in use", UsageError, "choose another --name"),
    (r"unresolvable cdi devices|failed to inject cdi", DoesNotFit, "nvidia-ctk cdi generate makes the file that names it"),
    (r"executable file .*not found|command .*not found", NotFound, "the image lacks it; try another --image"),
    (r"unable to set memory limit|minimum memory limit", UsageError, "nothing starts with so little; raise --memory"),
    (r"unable to find (user|network)|network .* not found", NotFound, "--option user= or network= names what is there"),
    (r"range of cpus|requested cpus are not available|insufficient", DoesNotFit, ""),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Client:
    """One of the clients."""

    dialect: Dialect

    def run(
        self,
        *arguments: str,
        seconds: float = _ANSWER_SECONDS,
        environment: Mapping[str, str] | None = None,
        given: str = "",
    ) -> str:
        """What it prints; a `TonnageError` of the right kind if it fails. `given` is what it can read from its input."""
        done = self._call(arguments, seconds, environment or {}, given)
        if done.returncode != 0:
            raise self.error(done.stderr or done.stdout)
        return done.stdout

    def _call(
        self, arguments: Sequence[str], seconds: float, environment: Mapping[str, str], given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        # Podman's monitor leaves an empty file `oom` in its working folder when a container is killed for memory: ours,
        # not the user's.
        folder = state_folder() / "containers"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            return subprocess.run(
                [self.dialect.command, *arguments], input=given, capture_output=True, encoding="utf-8",
                errors="replace", timeout=seconds, check=False, env={**os.environ, **environment}, cwd=folder,
            )  # fmt: skip
        except (FileNotFoundError, PermissionError):
            raise self._not_installed() from None
        except subprocess.TimeoutExpired:
            raise Unreachable(f"{self.dialect.command} {arguments[0]} did not answer in {seconds:.0f} s") from None

    def inspect(self, kind: str, *names: str) -> list[dict[str, Any]]:
        """Descriptions of containers or images; `NotFound` if one of them is not there."""
        documents: list[dict[str, Any]] = json.loads(self.run("inspect", "--type", kind, *names))
        return documents

    def find_image(self, reference: str) -> dict[str, Any] | None:
        try:
            return self.inspect("image", reference)[0]
        except NotFound:
            return None

    def build(self, folder: str, tag: str, labels: Sequence[str], *, one_layer: bool) -> None:
        marks = [word for label in labels for word in ("--label", label)]
        marks += self.dialect.build_one_layer if one_layer else ()
        arguments = ["build", "--force-rm", *self.dialect.build, *marks, "--tag", tag]
        known = set() if one_layer else self._image_ids()
        done = self._call([*arguments, "--file", f"{folder}/Containerfile", folder], _BUILD_SECONDS, {})
        if done.returncode != 0:
            if not one_layer:
                self._remove_steps(done.stdout, known)
            raise self._build_error(done.stdout + done.stderr)

    def _image_ids(self) -> set[str]:
        return set(self.run("images", "--all", "--quiet", "--no-trunc").split())

    def _remove_steps(self, said: str, known: set[str]) -> None:
        """What a build that failed had made until then: each step is an image without a name, `--> 1a2b3c4d5e6f`.

        Those that were there before are others': the base image, and steps that were found again.
        """
        steps = re.findall(r"^ *-+> ([0-9a-f]{10,64})$", said, re.MULTILINE)
        fresh = [step for step in steps if not any(image.startswith(f"sha256:{step}") for image in known)]
        for step in reversed(fresh):
            with suppress(TonnageError):  # another build may have gone on from here meanwhile
                self.run("rmi", step)

    def _build_error(self, said: str) -> TonnageError:
        """What the step that failed said last, and not only that it failed."""
        error = self.error(said)
        lines = [line.strip() for line in said.splitlines() if line.strip() and "level=" not in line]
        own = [line for line in lines if not re.match(r"error|STEP|\[|-->", line, re.IGNORECASE)]
        if type(error) is not TonnageError or not own:
            return error
        return TonnageError(f"the image cannot be built: {own[-1]}", error.message)

    def lines(self, *arguments: str) -> Iterator[str]:
        """What it prints, as it prints it; both streams in one."""
        try:
            process = subprocess.Popen(
                [self.dialect.command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace",
            )  # fmt: skip
        except (FileNotFoundError, PermissionError):
            raise self._not_installed() from None
        assert process.stdout is not None
        with process, closing(process.stdout):
            try:
                for line in process.stdout:
                    yield line.rstrip("\n")
            finally:
                process.terminate()

    @property
    def is_here(self) -> bool:
        """Podman without a remote address runs containers itself, on this machine."""
        remote = self.dialect.remote
        return sys.platform == "linux" and bool(remote) and remote not in os.environ

    def size(self) -> tuple[int, int]:
        """Cores and bytes of memory of the machine behind the client, which need not be this one."""
        answer = json.loads(self.run(*self.dialect.info))
        return int(_dig(answer, self.dialect.cores)), int(_dig(answer, self.dialect.memory_bytes))

    def error(self, said: str) -> TonnageError:
        """Its own words as one sentence, and what they mean for the user."""
        message = _sentence(said)
        for pattern, kind, hint in _MEANINGS:
            if re.search(pattern, said, re.IGNORECASE):
                text = f"{self.dialect.command} does not answer: {message}" if kind is Unreachable else message
                return kind(text, hint or (self.dialect.start_it if kind is Unreachable else ""))
        return TonnageError(f"{self.dialect.command} says: {message}")

    def _not_installed(self) -> Unreachable:
        return Unreachable(
            f"{self.dialect.command} is not installed on this machine",
            f"apt-get install {self.dialect.command}, or another --engine",
        )


def _dig(document: Any, path: Sequence[str]) -> Any:
    for key in path:
        document = document.get(key, 0) if isinstance(document, dict) else 0
    return document


def _sentence(said: str) -> str:
    """The line with the error; warnings about the host's settings come before it."""
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")] or lines[-1:] or ["no word about why"]
    return re.sub(r"^error( response from daemon)?: ", "", errors[-1], flags=re.IGNORECASE)
