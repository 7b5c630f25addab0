"""What the server does when things go wrong, with clients that count every request by its id.

    python robustness.py reloads [--reloads 100]       models are loaded again under 80 % load
    python robustness.py drain   [--requests 10000]    SIGTERM under load, again and again
    python robustness.py kill    [--seconds 60]        instances are killed with -9 under load
    python robustness.py soak    [--seconds 3600]      mixed load: does memory grow?
    python robustness.py fuzz    [--count 100000]      malformed requests over REST and gRPC

Each prints a table and ends with 1 where something is not as it should be. `--write` adds its rows to results/.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import robust_ends
import robust_fuzz
import robust_reloads
import robust_soak
from robust_rig import write_models

PARTS = {
    "reloads": robust_reloads.reloads,
    "drain": robust_ends.drain,
    "kill": robust_ends.kill,
    "soak": robust_soak.soak,
    "fuzz": robust_fuzz.fuzz,
}
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--reloads", type=int, default=100)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_models(Path(folder))
        row = PARTS[options.part](Path(folder), options)
    for name, value in row.items():
        print(f"{name:>24}  {value}")
    if options.write:
        RESULTS.mkdir(exist_ok=True)
        about = {"part": options.part, "date": datetime.now(UTC).date().isoformat(), "machine": platform.machine()}
        with (RESULTS / f"robustness-{about['date']}.jsonl").open("a") as file:
            file.write(json.dumps({**about, **row}) + "\n")
    raise SystemExit(0 if row["passed"] else 1)


if __name__ == "__main__":
    main()
