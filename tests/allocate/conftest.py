"""Traces are made by the generator of the benchmark."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "allocation"))
