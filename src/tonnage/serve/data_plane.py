"""Everything that clients can ask for, whichever transport they use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tonnage import __version__
from tonnage.serve.classification import check_classes, with_classes
from tonnage.serve.configuration_json import configuration_json
from tonnage.serve.errors import InvalidRequest, Unavailable, UnknownThing
from tonnage.serve.given_files import PREFIX, files_of
from tonnage.serve.models import Models
from tonnage.serve.requests import Answer, Request, Response, now
from tonnage.serve.served_version import ServedVersion
from tonnage.serve.shared_regions import SharedRegions

SERVER_NAME = "tonnage"
# The parts of Triton's protocol beyond the common one that this server has.
EXTENSIONS = [
    "classification", "model_repository", "schedule_policy", "model_configuration", "system_shared_memory",
    "binary_tensor_data", "parameters", "statistics",
]  # fmt: skip
_MOST_DIGITS = 18  # of a version


@dataclass(slots=True)
class DataPlane:
    models: Models
    regions: SharedRegions = field(default_factory=SharedRegions)
    is_starting: bool = False  # models are loaded for the first time
    is_explicit: bool = True  # clients may load and unload models
    is_draining: bool = False

    @property
    def is_ready(self) -> bool:
        return not self.is_starting and not self.is_draining and self.models.are_ready

    def infer(self, request: Request) -> None:
        """The answer comes by `request.answer`; what is wrong before anything runs is raised."""
        find = self.find if self.is_starting else self.models.find
        version = find(request.model, request.version)
        version.checker.check(request)
        request.arrived = now()
        if request.outputs is not None and any(each.classes for each in request.outputs):
            check_classes(request, version.configuration)
            request.answer = _naming_classes(request, version.configuration, request.answer)
        version.submit(request)

    def find(self, name: str, version: str = "") -> ServedVersion:
        """What is no version is told first. While models are loaded for the first time, nobody knows which there are."""
        if version and not (version.isascii() and version.isdigit() and len(version) <= _MOST_DIGITS):
            raise InvalidRequest(f"{version!r} is no version: versions are whole numbers")
        try:
            return self.models.find(name, version)
        except UnknownThing:
            if self.is_starting:
                raise Unavailable(f"{name!r} is not ready: models are being loaded") from None
            raise

    def server_metadata(self) -> dict[str, Any]:
        return {"name": SERVER_NAME, "version": __version__, "extensions": EXTENSIONS}

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        found = self.find(name, version)
        versions = [found.version] if version else [each.version for each in self.models.versions(name)]
        return found.configuration.metadata(versions)

    def model_is_ready(self, name: str, version: str = "") -> bool:
        """What is unknown is not ready, as Triton has it; only what is no version is wrong."""
        try:
            return not self.is_draining and self.find(name, version).is_ready
        except (UnknownThing, Unavailable):
            return False

    def model_configuration(self, name: str, version: str = "") -> dict[str, Any]:
        return configuration_json(self.find(name, version).configuration)

    def index(self, *, ready_only: bool = False) -> list[dict[str, str]]:
        return [each.to_json() for each in self.models.index() if not ready_only or each.state == "READY"]

    async def load(self, name: str, parameters: Mapping[str, Any]) -> None:
        """`config` is a whole configuration as JSON; `file:PATH` are files that count instead of the folder's."""
        self._check_control()
        files = files_of(parameters)
        for key, value in parameters.items():
            if type(value) is not str and not key.startswith(PREFIX):
                raise InvalidRequest(f"parameters.{key} is not a string")
        text = parameters.get("config")
        if files and text is None:
            raise InvalidRequest("files of a model need its configuration with them", "send it as parameters.config")
        await self.models.load(name, text, files)

    async def unload(self, name: str, parameters: Mapping[str, Any]) -> None:  # noqa: ARG002 - no model depends on another
        self._check_control()
        with suppress(UnknownThing):  # it is not loaded, which was asked for
            await self.models.unload(name)

    def _check_control(self) -> None:
        if not self.is_explicit:
            raise Unavailable("explicit model load / unload is not allowed if polling is enabled")

    def statistics(self, name: str = "", version: str = "") -> list[dict[str, Any]]:
        if not name:
            chosen = self.models.all()
        else:
            chosen = self._of_model(name, version)
        return [each.statistics.to_json(each.configuration.name, each.version) for each in chosen]

    def _of_model(self, name: str, version: str) -> list[ServedVersion]:
        """For statistics, of which Triton calls those of unknown models invalid."""
        try:
            return [self.find(name, version)] if version else self.models.versions(name)
        except (UnknownThing, Unavailable) as error:
            raise InvalidRequest(error.message) from None


def _naming_classes(request: Request, configuration: Any, answer: Callable[[Answer], None]) -> Callable[[Answer], None]:
    def named(result: Answer) -> None:
        if isinstance(result, Response):
            outputs = with_classes(result.outputs, request, configuration)
            result = Response(result.model, result.version, result.id, outputs, result.parameters)
        answer(result)

    return named
