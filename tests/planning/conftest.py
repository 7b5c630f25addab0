"""Rigs and problems of neighbouring tests serve here as well."""

import sys
from pathlib import Path

for neighbour in ("engines", "allocate"):
    sys.path.append(str(Path(__file__).parents[1] / neighbour))
