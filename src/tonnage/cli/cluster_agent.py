"""`tonnage cluster agent`: the process of a node that `cluster measure` and `cluster statistics` ask."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

TokenFile = Annotated[
    Path | None, typer.Option(help="File with the token that agents and those who ask share; made by the first agent.")
]


def agent_command(
    listen: Annotated[str, typer.Option(help="Address and port.")] = "127.0.0.1:8643",
    token_file: TokenFile = None,
) -> None:
    """Answer questions about this node: load, memory, speed, and transfers to the agents of other nodes."""
    from tonnage.cli.configure_server import address
    from tonnage.errors import UsageError
    from tonnage.stages.agent import Agent
    from tonnage.stages.tokens import read_or_make_token, token_path

    host, port = address(listen)
    token, made = read_or_make_token(token_file)
    if made:
        print(f"made a new token: {token_path(token_file)}; the other nodes need the same", file=sys.stderr)
    try:
        agent = Agent(host, port, token)
    except OSError as error:
        hint = "choose another --listen"
        raise UsageError(f"cannot listen at {host}:{port}: {error.strerror or error}", hint) from None
    with agent:
        print(f"agent at {listen}", file=sys.stderr, flush=True)
        agent.serve_forever()
