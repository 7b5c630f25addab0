"""How wrong the kernel model is on layers and networks that it has not seen, on the GPU whose rows lie in results/.

    python benchmarks/kernels/cross_validate.py [--folds 5] [--write]

Whole measurements are left out, never single kernels; constants, factors of operators and trees are fitted to the rest.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from raw_rows import RESULTS, read_samples

from tonnage.benchmark.fit_kernels import LONG_SECONDS, KindError, cross_validate

FILE = RESULTS / "cross-validation-h200.json"


def text(errors: list[KindError]) -> str:
    head = f"kernels longer than {1e6 * LONG_SECONDS:.0f} us\n{'kind':30s} {'rows':>5s} {'median':>7s} {'weighted by time':>17s} {'bias':>7s}\n"
    return head + "".join(
        f"{e.kind:30s} {e.rows:5d} {e.median:7.1%} {e.time_weighted:17.1%} {e.bias:+7.1%}\n" for e in errors
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    errors = cross_validate(list(read_samples(folder=options.results)), options.folds)
    print(text(errors))
    if options.write:
        FILE.write_text(json.dumps([asdict(error) for error in errors], indent=1) + "\n")


if __name__ == "__main__":
    main()
