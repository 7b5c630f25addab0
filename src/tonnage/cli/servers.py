"""`tonnage servers`: which configuration servers' labels are deployed."""

from __future__ import annotations

from typing import Annotated

import typer

Name = Annotated[str, typer.Argument(help="The server's name.")]


def add_command(
    url: Annotated[str, typer.Argument(help="Its address, such as https://cluster.example:8642.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Trust a server: shows the fingerprint of its key, to be compared with what its operator says."""
    from tonnage.errors import UsageError
    from tonnage.service.client import Client
    from tonnage.service.known_servers import add_server, known_servers

    server = Client(url).server()
    before = known_servers().get(server.name)
    print(f"{server.name}  {server.fingerprint}")
    is_new = before is None or before.public_key != server.public_key
    if is_new and not yes:
        try:
            agreed = typer.confirm("Deploy labels that are signed with this key?", err=True)
        except typer.Abort:
            raise UsageError("nobody has answered", "compare the fingerprint, then add --yes") from None
        if not agreed:
            return 1
    add_server(server)
    return 0


def list_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """The servers that are known, with the fingerprints of their keys."""
    import json

    from tonnage.service.known_servers import known_servers

    servers = known_servers().values()
    if as_json:
        print(json.dumps([{"name": s.name, "url": s.url, "fingerprint": s.fingerprint} for s in servers]))
        return
    for server in servers:
        print(f"{server.name}  {server.url}  {server.fingerprint}")


def remove_command(name: Name) -> None:
    """Trust a server no longer: its labels are refused from now on."""
    from tonnage.service.known_servers import remove_server

    remove_server(name)
