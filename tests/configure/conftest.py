"""The small traces of tests/estimate serve here as well."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "estimate"))
