"""The helpers of tests/configure serve here as well."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "configure"))
