"""Tonnage tells you, before you run it, what a deep-learning program will need on any GPU, and then puts it there."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["allocate", "configure", "deploy", "estimate", "profile", "recommend", "split"]

if TYPE_CHECKING:
    from tonnage.api import estimate, profile, recommend
    from tonnage.planning import allocate
    from tonnage.service.configuring import configure
    from tonnage.service.deployed import deploy
    from tonnage.stages.splitting import split


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name in __all__:
        from tonnage.verbs import find_verb

        return find_verb(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
