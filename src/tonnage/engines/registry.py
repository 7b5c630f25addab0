"""Engines by name, imported when they are asked for. Other packages add theirs as entry points of `tonnage.engines`."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from tonnage.engines.base import Engine
from tonnage.errors import NotFound, UsageError

GROUP = "tonnage.engines"
_ENGINES = {
    "local": "tonnage.engines.local:LocalEngine",
    "podman": "tonnage.engines.containers:PodmanEngine",
    "docker": "tonnage.engines.containers:DockerEngine",
    "kubernetes": "tonnage.engines.kubernetes:KubernetesEngine",
    "slurm": "tonnage.engines.slurm:SlurmEngine",
    "ray": "tonnage.engines.ray:RayEngine",
}


def engine_names() -> tuple[str, ...]:
    """All that can be asked for, our own first."""
    return tuple(dict.fromkeys((*_ENGINES, *sorted(_plugins()))))


def find_engine(name: str) -> Engine:
    """A new engine of that name; our own cannot be replaced from outside."""
    if name in _ENGINES:
        module, _, attribute = _ENGINES[name].partition(":")
        engine: Engine = getattr(import_module(module), attribute)()
        return engine
    plugin = _plugins().get(name)
    if plugin is None:
        raise NotFound(f"there is no engine {name!r}", f"known are {', '.join(engine_names())}")
    return _load(plugin)


def _plugins() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _load(plugin: EntryPoint) -> Engine:
    try:
        engine: Engine = plugin.load()()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"the engine {plugin.name!r} ({plugin.value}) cannot be loaded: {error}") from error
    return engine
