"""The instances of one version: starts one at each place, puts another one where one dies or hangs, and ends them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from tonnage.errors import InvalidFile, TonnageError
from tonnage.serve.configuration import ModelConfiguration
from tonnage.serve.instance_process import Died, InstancePlace, InstanceProcess, Turn, TurnFailed
from tonnage.serve.requests import now
from tonnage.serve.runtimes import LoadOrder

log = logging.getLogger("tonnage.serve")
_LOAD_SECONDS = 600.0
_RUN_SECONDS = 600.0  # that a run may take where the configuration says nothing
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0  # between attempts to replace an instance
_HOPELESS = 5  # attempts in a row, after which those who wait are told
_LONGEST_WATCH = 5.0  # seconds between two looks at what runs

MakeInstance: TypeAlias = Callable[..., InstanceProcess]


class PoolOwner(Protocol):
    """Who has work for instances."""

    @property
    def needs_instances(self) -> bool:
        """Is it worth replacing one that died?"""
        ...

    def instance_is_idle(self) -> None: ...

    def turn_is_done(self, instance: InstanceProcess, result: Turn | TurnFailed) -> None: ...

    def turn_is_lost(self, instance: InstanceProcess) -> None:
        """It died, perhaps of what it was busy with."""
        ...

    def turn_is_stuck(self, instance: InstanceProcess) -> None:
        """It took too long and was killed."""
        ...

    def nobody_is_left(self) -> None:
        """All instances have died and no other can be started; it is still tried."""
        ...


class InstancePool:
    """`idle` are those of `all` that wait for work; the owner takes them from there."""

    def __init__(
        self,
        owner: PoolOwner,
        places: Sequence[InstancePlace],
        make_order: Callable[[InstancePlace], LoadOrder],
        run_seconds: float,
        make: MakeInstance,
    ) -> None:
        self.all: set[InstanceProcess] = set()
        self.idle: list[InstanceProcess] = []
        self.restarts = 0
        self.problem = ""  # why no instance can be started
        self._owner, self._places, self._make_order, self._make = owner, places, make_order, make
        self._run_seconds = run_seconds
        self._loop = asyncio.get_running_loop()
        self._replacing: set[asyncio.Task[None]] = set()
        self._short_lives = 0  # deaths in a row of instances that had not worked
        self._watch: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def start(self) -> ModelConfiguration:
        """All of them; where one cannot load the model none is left, and its error is raised."""
        tasks = [self._loop.create_task(self._add(place)) for place in self._places]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.close()
            raise
        self._look()
        return tasks[0].result()

    async def close(self) -> None:
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        replacing, instances = list(self._replacing), list(self.all)
        for task in replacing:
            task.cancel()
        self.all.clear()
        self.idle.clear()
        for instance in instances:
            instance.close()
            if instance.turn is not None:  # nobody waits for that any more
                instance.kill()
        await asyncio.gather(*replacing, *(instance.reap() for instance in instances), return_exceptions=True)

    # -- birth --------------------------------------------------------------------------------------------------------

    async def _add(self, place: InstancePlace) -> ModelConfiguration:
        """One that dies while it loads the model may have been killed, so another one tries."""
        try:
            return await self._add_one(place)
        except Died:
            return await self._add_one(place)

    async def _add_one(self, place: InstancePlace) -> ModelConfiguration:
        instance = self._make(
            self._make_order(place), on_done=self._owner.turn_is_done, on_end=self._ended, place=place
        )
        try:
            configuration = await instance.start(_LOAD_SECONDS)
        except BaseException:
            instance.kill()
            await instance.reap()
            raise
        self.all.add(instance)
        self.idle.append(instance)
        self.problem = ""
        self._owner.instance_is_idle()
        return configuration

    # -- death --------------------------------------------------------------------------------------------------------

    def _ended(self, instance: InstanceProcess) -> None:
        self._take_out(instance)
        self._owner.turn_is_lost(instance)
        self._replace_later(instance)

    def _look(self) -> None:
        """Ends what runs for too long. Not one timer for each turn: there may be tens of thousands a second."""
        self._watch = self._loop.call_later(min(self._run_seconds / 4, _LONGEST_WATCH), self._look)
        latest = now() - self._run_seconds
        for instance in [each for each in self.all if each.turn is not None and each.since < latest]:
            log.error(
                "an instance is killed: its run does not end",
                extra={"path": instance.order.path, "pid": instance.pid, "seconds": self._run_seconds},
            )
            instance.close()
            instance.kill()
            self._take_out(instance)
            self._owner.turn_is_stuck(instance)
            self._replace_later(instance)

    def _take_out(self, instance: InstanceProcess) -> None:
        self.all.discard(instance)
        if instance in self.idle:
            self.idle.remove(instance)
        self.restarts += 1
        self._short_lives = 0 if instance.has_worked else self._short_lives + 1

    def _replace_later(self, instance: InstanceProcess) -> None:
        if self._is_closed:
            return
        task = self._loop.create_task(self._replace(instance, self._short_lives))
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def _replace(self, dead: InstanceProcess, short_lives: int) -> None:
        known: dict[str, Any] = {"path": dead.order.path, "pid": dead.pid}
        log.warning("an instance ended and is replaced", extra={**known, "how": await dead.reap()})
        if short_lives > 1:  # they die of themselves: not so fast
            await asyncio.sleep(_pause(short_lives - 2))
        attempts = 0
        while self._owner.needs_instances:
            try:
                await self._add(dead.place)
                return
            except (TonnageError, OSError) as error:
                attempts += 1
                log.error("an instance cannot be replaced", extra={**known, "reason": str(error)})
                if attempts >= _HOPELESS and not self.all:
                    self.problem = str(error)
                    self._owner.nobody_is_left()
            await asyncio.sleep(_pause(attempts - 1))


def run_seconds(configuration: ModelConfiguration) -> float:
    """How long one run may take: the parameter `run_timeout_seconds`."""
    text = configuration.parameters.get("run_timeout_seconds", "")
    try:
        seconds = float(text) if text else _RUN_SECONDS
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InvalidFile(f"parameter run_timeout_seconds of {configuration.name} is {text!r}, not a number of seconds")
    return seconds


def _pause(times: int) -> float:
    """Longer from time to time."""
    return min(_FIRST_PAUSE * 2.0 ** min(times, 30), _LONGEST_PAUSE)
