"""How wrong the kernel model is on layers and networks that it has not seen, on the GPU whose rows come with the package.

    python benchmarks/kernels/cross_validate.py [--folds 5] [--write]

Whole measurements are left out, never single kernels; constants, factors of operators and trees are fitted to the rest.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tonnage.benchmark.fit_kernels import LONG_SECONDS, KindError, cross_validate
from tonnage.benchmark.kernel_samples import database_samples
from tonnage.benchmark.shipped import shipped_database

FILE = Path(__file__).parent / "results" / "cross-validation-h200.json"


def text(errors: list[KindError]) -> str:
    head = f"kernels longer than {1e6 * LONG_SECONDS:.0f} us\n{'kind':30s} {'rows':>5s} {'median':>7s} {'weighted by time':>17s} {'bias':>7s}\n"
    return head + "".join(
        f"{e.kind:30s} {e.rows:5d} {e.median:7.1%} {e.time_weighted:17.1%} {e.bias:+7.1%}\n" for e in errors
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with shipped_database() as database:
        samples = list(database_samples(database))
    errors = cross_validate(samples, options.folds)
    print(text(errors))
    if options.write:
        FILE.write_text(json.dumps([asdict(error) for error in errors], indent=1) + "\n")


if __name__ == "__main__":
    main()
