"""Ends under load: of the server by SIGTERM, and of its instances by -9."""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from robust_load import Load
from robust_rig import Rig, serving

_INSTANCES = 3  # of all models; none is killed while another is being replaced
_ROUND = 1000  # requests that are answered before the server is told to end


def drain(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Every request that was sent is answered, and the server ends with 0."""
    outcomes: Counter[str] = Counter()
    row = {"requests": 0, "rounds": 0, "lost": 0, "doubled": 0, "left behind": 0}
    problems: list[str] = []
    codes: Counter[int | None] = Counter()
    while row["requests"] < options.requests:
        with serving(folder) as rig:
            load = Load(rig.port("REST"), options.clients, stops_when_refused=True)
            instances = rig.instances
            asyncio.run(_until_it_ends(rig, load, min(_ROUND, options.requests // 2)))
            codes[rig.process.wait(60)] += 1
        row["left behind"] += len(psutil.wait_procs(instances, timeout=5)[1])
        row["requests"] += len(load.sent)
        row["rounds"] += 1
        row["lost"] += load.unanswered
        row["doubled"] += load.doubled
        outcomes += load.outcomes
        problems += load.problems
    right = outcomes.pop("right", 0)
    outcomes.pop("not taken", 0)
    passed = not row["lost"] and not row["doubled"] and not outcomes and set(codes) == {0} and not row["left behind"]
    return {
        **row, "right": right, "others": dict(outcomes), "exit codes": {str(code): n for code, n in codes.items()},
        "problems": problems[:5], "passed": passed,
    }  # fmt: skip


async def _until_it_ends(rig: Rig, load: Load, requests: int) -> None:
    running = asyncio.create_task(load.run())
    while len(load.sent) < requests and not running.done():
        await asyncio.sleep(0.005)
    rig.process.terminate()
    await asyncio.wait_for(running, 60)


def kill(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Instances die in the middle of their work: their requests run again, and none is lost, doubled or mixed up."""
    seconds, chance = options.seconds or 60.0, random.Random(options.seed)
    end = time.monotonic() + seconds
    with serving(folder) as rig:
        load = Load(rig.port("REST"), options.clients, is_over=lambda: time.monotonic() > end)
        kills = asyncio.run(_killing(rig, load, chance))
        counted = len(load.answered)
        code = rig.stop()
    failed = sum(count for kind, count in load.outcomes.items() if kind.startswith("status"))
    wrong = load.outcomes["lost"] + load.outcomes["mixed"] + load.doubled + load.unanswered
    return {
        "seconds": seconds, "requests": len(load.sent), "kills": kills, "right": load.outcomes["right"],
        "answered ids": counted, "failed (died twice)": failed, "lost": load.unanswered, "doubled": load.doubled,
        "mixed": load.outcomes["mixed"], "exit code": code, "problems": load.problems,
        "passed": not wrong and code == 0 and kills > 0 and load.outcomes["right"] + failed == len(load.sent),
    }  # fmt: skip


async def _killing(rig: Rig, load: Load, chance: random.Random) -> int:
    running, kills = asyncio.create_task(load.run()), 0
    while not running.done():
        await asyncio.wait([running], timeout=chance.uniform(0.05, 0.5))
        instances = rig.instances
        if not running.done() and await asyncio.to_thread(rig.loaded) == len(instances) == _INSTANCES:
            chance.choice(instances).kill()
            kills += 1
    await running
    return kills
