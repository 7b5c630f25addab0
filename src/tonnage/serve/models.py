"""The models that are served: loads versions beside those that run, switches when they are warm, and lets the old
ones end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tonnage.errors import NotFound, TonnageError
from tonnage.serve.configuration import ModelConfiguration, VersionPolicy
from tonnage.serve.configuration_file import configuration_of_json, read_configuration
from tonnage.serve.errors import InvalidRequest, LoadFailed, NoRoom, Unavailable, UnknownThing
from tonnage.serve.given_files import given_folder
from tonnage.serve.instance_process import InstancePlace
from tonnage.serve.memory_limits import Claim, MemoryLimits
from tonnage.serve.model_states import UNAVAILABLE, UNLOADING, ModelRecord, ModelState, Source
from tonnage.serve.places import places_of
from tonnage.serve.repository import ModelFolder, Repository
from tonnage.serve.runtimes import with_model_file
from tonnage.serve.served_version import ServedVersion

log = logging.getLogger("tonnage.serve")
_AT_ONCE = 4  # models that are loaded together when the server starts
_MOST_DIGITS = 18  # of a version


class Models:
    """By name. All changes of one model happen one after the other, and go on when whoever asked for them leaves."""

    def __init__(
        self,
        repository: Repository,
        *,
        make: Callable[[ModelConfiguration, int, str, Path, list[InstancePlace]], ServedVersion],
        gpus: tuple[int, ...] = (),
        memory: MemoryLimits | None = None,
    ) -> None:
        self._repository, self._gpus, self._memory, self._make = repository, gpus, memory, make
        self._models: dict[str, ModelRecord] = {}
        self._held: dict[ServedVersion, tuple[ModelFolder, Claim | None]] = {}  # files and memory, until it has ended
        self._retiring: set[asyncio.Task[None]] = set()
        self._changing: set[asyncio.Task[None]] = set()
        self._is_started = False
        self._is_closing = False

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
        found = model.served.get(int(version)) if len(version) <= _MOST_DIGITS else None
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
        """The first load is over, and of every model that was not unloaded a version runs. A reload changes nothing
        about that, even where it fails."""
        return self._is_started and all(model.served or not model.is_wanted for model in self._models.values())

    def index(self) -> list[ModelState]:
        """Everything in the repository, served or not; of a model that nobody has asked for only its name."""
        found: list[ModelState] = []
        try:
            names = self._repository.names()
        except NotFound:  # what runs goes on without the folder
            names = []
        for name in dict.fromkeys([*names, *self._models]):
            model = self._models.get(name)
            found += [ModelState(name)] if model is None else model.states(name) or [ModelState(name)]
        return found

    @property
    def folders(self) -> dict[str, ModelFolder | None]:
        """Of each model that somebody wants, the folder as it was when it was last tried."""
        return {name: model.folder for name, model in self._models.items() if model.is_wanted}

    # -- changing -----------------------------------------------------------------------------------------------------

    async def load_all(self, names: Iterable[str]) -> None:
        """When the server starts: what cannot be loaded is told, and the others are served."""
        turn = asyncio.Semaphore(_AT_ONCE)

        async def load(name: str) -> None:
            async with turn:
                await self.try_load(name)

        await asyncio.gather(*map(load, names))
        self._is_started = True

    async def try_load(self, name: str) -> None:
        """Only logs why it fails; the index says it, too."""
        try:
            await self.load(name)
        except TonnageError as error:
            model = self._models.setdefault(name, ModelRecord())
            model.failed = model.failed or {0: error.message}
            log.error("the model cannot be loaded", extra={"model": name, "reason": error.message})

    async def load(self, name: str, configuration: str | None = None, files: Mapping[str, bytes] | None = None) -> None:
        """Loads what the folder has now. What is new or changed is loaded and warmed beside what runs, then takes its
        place; where that fails what runs goes on, and the error is raised. `configuration` is JSON that counts instead of
        the folder's file, as `files` do instead of all that is in it."""
        given = await asyncio.to_thread(given_folder, name, files) if files else None
        if given is None:
            self._repository.model(name)  # raises where there is none
        await self._apart(self._load(name, self._models.setdefault(name, ModelRecord()), configuration, given))

    async def unload(self, name: str) -> None:
        model = self._models.get(name)
        if model is None:
            self._repository.model(name)  # raises where there is none
            return
        await self._apart(self._unload(model))

    async def drain(self) -> None:
        """All requests are answered, then all instances end."""
        await self._stop_changing()
        await asyncio.gather(*(version.retire() for version in self.all()), *self._retiring)

    async def close(self) -> None:
        await self._stop_changing()
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*(version.close() for version in self.all()), *self._retiring, return_exceptions=True)

    async def _load(self, name: str, model: ModelRecord, override: str | None, given: ModelFolder | None) -> None:
        async with model.lock:
            model.is_wanted = True
            model.failed.clear()
            try:
                folder = given if given is not None else await asyncio.to_thread(self._repository.model, name)
                model.folder = folder if given is None else None
                settings = await asyncio.to_thread(_settings, folder, override)
                wanted = settings.versions.chosen(list(folder.versions))
                if not wanted:
                    has = ", ".join(map(str, folder.versions))
                    raise InvalidRequest(
                        f"its version_policy asks for none of the versions {has} that {folder.path} has"
                    )
                sources = {number: _source(folder, number, settings) for number in wanted}
                new = [number for number in wanted if model.sources.get(number) != sources[number]]
                loaded = await self._load_versions(model, folder, new, settings)
            except TonnageError as error:
                if not model.failed:
                    model.failed[0] = error.message
                kind = NoRoom if isinstance(error, NoRoom) else LoadFailed
                raise kind(f"load failed for model {name!r}: {error.message}", error.hint) from error
            before, model.sources = model.served, sources
            model.served = {number: loaded.get(number) or before[number] for number in wanted}
            self._let_go(model, before)

    async def _unload(self, model: ModelRecord) -> None:
        async with model.lock:
            before, model.served = model.served, {}
            model.is_wanted = False
            model.folder = None
            model.sources.clear()
            model.failed.clear()
            self._let_go(model, before)

    async def _load_versions(
        self, model: ModelRecord, folder: ModelFolder, numbers: list[int], settings: ModelConfiguration
    ) -> dict[int, ServedVersion]:
        """All of them, or none: where one fails the others are closed."""
        loop = asyncio.get_running_loop()
        tasks = {number: loop.create_task(self._load_version(folder, number, settings)) for number in numbers}
        model.loading = set(numbers)
        try:
            await asyncio.gather(*tasks.values())
        except BaseException as error:
            for task in tasks.values():
                if isinstance(error, asyncio.CancelledError):
                    task.cancel()
            found = await asyncio.gather(*tasks.values(), return_exceptions=True)
            failed = {number: each for number, each in zip(tasks, found, strict=True) if isinstance(each, TonnageError)}
            model.failed = {number: each.message for number, each in failed.items()}
            await self._close([each for each in found if not isinstance(each, BaseException)])
            raise
        finally:
            model.loading = set()
        return {number: task.result() for number, task in tasks.items()}

    async def _load_version(self, folder: ModelFolder, number: int, settings: ModelConfiguration) -> ServedVersion:
        settings, path = with_model_file(settings, folder.versions[number])
        places = places_of(settings, self._gpus)
        claim = await self._memory.claim(settings, path, places) if self._memory is not None else None
        served = self._make(settings, number, settings.backend, path, places)
        try:
            await served.load()
        except BaseException:
            if claim is not None:
                claim.release()
            raise
        if claim is not None:
            claim.is_loaded = True
        self._held[served] = (folder, claim)
        return served

    # -- leaving ------------------------------------------------------------------------------------------------------

    def _let_go(self, model: ModelRecord, before: dict[int, ServedVersion]) -> None:
        """Of those that ran before, all that no longer do."""
        for number, version in before.items():
            if model.served.get(number) is not version:
                self._retire(model, number, version)

    def _retire(self, model: ModelRecord, number: int, version: ServedVersion) -> None:
        model.leaving[number] = UNLOADING
        task = asyncio.get_running_loop().create_task(version.retire())
        self._retiring.add(task)

        def done(_: asyncio.Task[None]) -> None:
            self._retiring.discard(task)
            self._release(version)
            model.leaving[number] = UNAVAILABLE

        task.add_done_callback(done)

    async def _close(self, versions: list[ServedVersion]) -> None:
        for version in versions:
            self._release(version)
            await version.close()

    def _release(self, version: ServedVersion) -> None:
        _, claim = self._held.pop(version, (None, None))
        if claim is not None:
            claim.release()

    async def _apart(self, work: Coroutine[Any, Any, None]) -> None:
        """In a task of its own, which is not cancelled with whoever waits for it."""
        if self._is_closing:
            work.close()
            raise Unavailable("the server is stopping")
        task = asyncio.get_running_loop().create_task(work)
        self._changing.add(task)
        task.add_done_callback(self._changing.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits any more
        await asyncio.shield(task)

    async def _stop_changing(self) -> None:
        self._is_closing = True
        changing = list(self._changing)
        for task in changing:
            task.cancel()
        await asyncio.gather(*changing, return_exceptions=True)


def _settings(folder: ModelFolder, override: str | None) -> ModelConfiguration:
    folder.check()
    if override is None:
        return read_configuration(folder)
    return configuration_of_json(folder.name, override, folder.path)


def _source(folder: ModelFolder, number: int, settings: ModelConfiguration) -> Source:
    """Which other versions are served is no matter."""
    return folder.stamps[number], replace(settings, versions=VersionPolicy())
