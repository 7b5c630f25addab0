"""The models that are served: loads versions beside those that run, switches when they are warm, and lets the old
ones end."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tonnage.errors import TonnageError
from tonnage.serve.configuration import CPU, ModelConfiguration
from tonnage.serve.configuration_file import configuration_of_json, read_configuration
from tonnage.serve.errors import InvalidRequest, Unavailable, UnknownThing
from tonnage.serve.instance_process import InstancePlace
from tonnage.serve.repository import ModelFolder, Repository
from tonnage.serve.runtimes import find_model_file
from tonnage.serve.served_version import ServedVersion

log = logging.getLogger("tonnage.serve")


@dataclass(slots=True)
class ModelState:
    """One version, as the index tells it."""

    name: str
    version: str
    state: str  # LOADING, READY, UNLOADING or UNAVAILABLE
    reason: str = ""

    def to_json(self) -> dict[str, str]:
        told = {"name": self.name, "version": self.version, "state": self.state, "reason": self.reason}
        return {key: value for key, value in told.items() if value}


@dataclass(slots=True)
class _Model:
    """What is known of a model of this name."""

    folder: ModelFolder | None = None
    served: dict[int, ServedVersion] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Models:
    """By name. All changes of one model happen one after the other."""

    def __init__(
        self,
        repository: Repository,
        *,
        gpus: tuple[int, ...] = (),
        make: Callable[[ModelConfiguration, int, str, Path, list[InstancePlace]], ServedVersion] = ServedVersion,
    ) -> None:
        self._repository, self._gpus, self._make = repository, gpus, make
        self._models: dict[str, _Model] = {}
        self._retiring: set[asyncio.Task[None]] = set()

    # -- asking -------------------------------------------------------------------------------------------------------

    def find(self, name: str, version: str = "") -> ServedVersion:
        """The named version, or the newest; raises `UnknownThing` or `Unavailable`."""
        model = self._models.get(name)
        if model is None:
            raise UnknownThing(f"there is no model {name!r}")
        if not version:
            if not model.served:
                raise Unavailable(f"no version of {name!r} is ready")
            return next(reversed(model.served.values()))
        if not (version.isascii() and version.isdigit()):
            raise InvalidRequest(f"{version!r} is no version: versions are whole numbers")
        found = model.served.get(int(version))
        if found is None:
            raise UnknownThing(f"{name!r} has no version {version} that is ready")
        return found

    def all(self) -> list[ServedVersion]:
        return [version for model in self._models.values() for version in model.served.values()]

    def versions(self, name: str) -> list[ServedVersion]:
        self.find(name)
        return list(self._models[name].served.values())

    @property
    def are_ready(self) -> bool:
        """Nothing is being loaded for the first time, and nothing has failed."""
        return all(model.served and not model.failed for model in self._models.values())

    def index(self) -> list[ModelState]:
        """Everything in the repository, served or not."""
        found: list[ModelState] = []
        names = dict.fromkeys([*self._repository.models(), *self._models])
        for name in names:
            model = self._models.get(name)
            if model is None:
                found.append(ModelState(name, "", ""))
                continue
            found += [ModelState(name, str(version), "READY") for version in model.served]
            found += [
                ModelState(name, str(version) if version else "", "UNAVAILABLE", why)
                for version, why in model.failed.items()
            ]
            if not model.served and not model.failed:
                found.append(ModelState(name, "", "UNAVAILABLE", "unloaded"))
        return found

    def changes(self) -> tuple[list[str], list[str]]:
        """Models whose folder is new or has changed since they were loaded, and those whose folder is gone."""
        folders = self._repository.models()
        known = {name: model.folder for name, model in self._models.items()}
        changed = [name for name, folder in folders.items() if known.get(name) != folder]
        return changed, [name for name, model in self._models.items() if name not in folders and model.served]

    # -- changing -----------------------------------------------------------------------------------------------------

    async def load(self, name: str, configuration: str | None = None) -> None:
        """Loads what the folder has now. What is new or changed is loaded and warmed beside what runs, then takes its
        place; where that fails what runs goes on, and the error is raised. `configuration` is JSON that counts instead of
        the folder's file."""
        folder = self._repository.model(name)
        model = self._models.setdefault(name, _Model())
        async with model.lock:
            model.failed.clear()
            model.folder = folder  # what has failed is tried again when it has changed
            try:
                settings = (
                    read_configuration(folder)
                    if configuration is None
                    else configuration_of_json(name, configuration, folder.path)
                )
                wanted = settings.versions.chosen(list(folder.versions))
                if not wanted:
                    raise InvalidRequest(f"{folder.path} has none of the versions that its configuration asks for")
                loaded = await asyncio.gather(*(self._load_version(folder, version, settings) for version in wanted))
            except TonnageError as error:
                model.failed[0] = error.message
                raise
            before, model.served = model.served, dict(zip(wanted, loaded, strict=True))
        for version in before.values():
            self._retire(version)

    async def unload(self, name: str) -> None:
        model = self._models.get(name)
        if model is None:
            self._repository.model(name)  # raises where there is none
            return
        async with model.lock:
            before, model.served = model.served, {}
            model.failed.clear()
        for version in before.values():
            self._retire(version)

    async def drain(self) -> None:
        """All requests are answered, then all instances end."""
        await asyncio.gather(*(version.retire() for version in self.all()), *self._retiring)

    async def close(self) -> None:
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*(version.close() for version in self.all()), *self._retiring, return_exceptions=True)

    async def _load_version(self, folder: ModelFolder, version: int, settings: ModelConfiguration) -> ServedVersion:
        backend, path = find_model_file(folder.versions[version], settings.file_name)
        settings = replace(settings, backend=settings.backend or backend)
        served = self._make(settings, version, settings.backend, path, places_of(settings, self._gpus))
        await served.load()
        return served

    def _retire(self, version: ServedVersion) -> None:
        task = asyncio.get_running_loop().create_task(version.retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)


def places_of(configuration: ModelConfiguration, gpus: tuple[int, ...]) -> list[InstancePlace]:
    """Threads are shared out among the instances on the processor."""
    places: list[int | None] = []
    for group in configuration.groups:
        on = (group.gpus or gpus) if gpus and group.kind != CPU else (None,)
        places += [gpu for gpu in on for _ in range(group.count)]
    threads = max((os.cpu_count() or 1) // len(places), 1)
    return [InstancePlace(gpu=gpu, threads=threads) for gpu in places]
