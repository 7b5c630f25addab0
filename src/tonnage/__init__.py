"""Tonnage tells you, before you run it, what a deep-learning program will need on any GPU, and then puts it there."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["estimate", "profile", "recommend"]

if TYPE_CHECKING:
    from tonnage.api import estimate, profile, recommend


def __getattr__(name: str) -> Any:
    """The verbs are imported on first use: `import tonnage` loads neither numpy nor torch."""
    if name in __all__:
        from tonnage import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
