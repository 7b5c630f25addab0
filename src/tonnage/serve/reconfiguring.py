"""Gives another configuration to a server that runs. What cannot be changed so is told, and stays as it is."""

from __future__ import annotations

import logging
from dataclasses import replace

from tonnage.serve.server import Control, ServeOptions, Server

log = logging.getLogger("tonnage.serve")
# What needs a restart.
FIXED = (
    "repository",
    "host",
    "http_port",
    "grpc_port",
    "metrics_port",
    "gpus",
    "tls",
    "memory_limit_bytes",
    "log_requests",
)


async def reconfigure(server: Server, options: ServeOptions) -> None:
    before = server.options
    fixed = {name: getattr(before, name) for name in FIXED}
    later = [name for name, value in fixed.items() if getattr(options, name) != value]
    if later:
        log.warning("the configuration has changes that need a restart", extra={"fields": ",".join(later)})
    # Clients keep what they have used up of their rate, unless the access itself has changed.
    access = before.access if options.access.says_the_same(before.access) else options.access
    server.apply(replace(options, access=access, **fixed))
    await _load_named(server, before)
    log.info("the new configuration is used")


async def _load_named(server: Server, before: ServeOptions) -> None:
    """Models that are newly named are loaded, those that are named no more are unloaded."""
    options = server.options
    if options.control is not Control.EXPLICIT or options.load_models == before.load_models:
        return
    had, wanted = set(server.wanted(before)), set(server.wanted(options))
    for name in sorted(wanted - had):
        await server.models.try_load(name)
    for name in sorted(had - wanted):
        await server.models.unload(name)
