"""A measuring process that measures nothing, or misbehaves: `fake_worker.py BEHAVIOUR PIPE DEVICE GPU_INDEX`.

A behaviour is a word, or a word and the batch of the points it befalls: `killed:4`.
"""

import os
import signal
import sys
import time
from multiprocessing.connection import Connection

from tonnage.benchmark.messages import Begun, Broken, Finished, Ready, Refused
from tonnage.benchmark.results import Measured, blank
from tonnage.benchmark.workloads import Point
from tonnage.errors import MissingDependency
from tonnage.store.rows import Environment

ENVIRONMENT = Environment(device="cpu", gpu="", torch="none")


def main() -> None:
    behaviour, victim = sys.argv[1].partition(":")[::2]
    with Connection(int(sys.argv[2])) as connection:
        if behaviour == "silent":
            sys.exit("Illegal instruction")
        if behaviour == "refuses":
            connection.send(Refused.of(MissingDependency("measuring needs torch", "pip install 'tonnage[torch]'")))
            return
        connection.send(Ready(ENVIRONMENT))
        serve(connection, behaviour, victim)


def serve(connection: Connection, behaviour: str, victim: str) -> None:
    while True:
        try:
            order = connection.recv()
        except EOFError:
            return
        for job in order.jobs:
            if behaviour != "mute":
                connection.send(Begun(job.key))
            if victim in (str(job.batch) if isinstance(job, Point) else job.kind, ""):
                misbehave(behaviour, connection)
        connection.send(Finished(tuple(Measured(blank(job, order.campaign)) for job in order.jobs)))


def misbehave(behaviour: str, connection: Connection) -> None:
    match behaviour:
        case "killed" | "mute":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits":
            print("CUDA error: an illegal memory access was encountered", file=sys.stderr, flush=True)
            os._exit(7)
        case "broken":
            connection.send(Broken("RuntimeError: CUDA error: unspecified launch failure"))
            os._exit(1)
        case "hangs":
            time.sleep(600)


main()
