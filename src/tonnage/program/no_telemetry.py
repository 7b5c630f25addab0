"""Some packages report to their makers what they are used for. Tonnage reports nothing, so neither do they."""

from __future__ import annotations

import os
import sys


def keep_quiet() -> None:
    """To be called before any of them is imported; it has no effect later, and does no harm."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # onnxruntime: otherwise a thread of its own begins with the import
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # OpenVINO does without it
