"""The command `tonnage`. Each subcommand is a function in a file of its own, which imports what it needs when it runs."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from tonnage import __version__
from tonnage.cli.accuracy import accuracy_command
from tonnage.cli.allocate import allocate_command
from tonnage.cli.configure import configure_command
from tonnage.cli.configure_server import configure_server_command
from tonnage.cli.deploy import deploy_command
from tonnage.cli.deployments import logs_command, status_command, stop_command
from tonnage.cli.doctor import doctor_command
from tonnage.cli.estimate import estimate_command
from tonnage.cli.fit import fit_command
from tonnage.cli.gpus import gpus_command
from tonnage.cli.pack import pack_command
from tonnage.cli.profile import profile_command
from tonnage.cli.recommend import recommend_command
from tonnage.cli.simulate import simulate_command
from tonnage.cli.split import split_command
from tonnage.errors import TonnageError

EXIT_CODES = """Exit codes: 0 ok, 1 failure, 2 usage, 3 does not fit or infeasible, 4 not found, 5 engine or server
unreachable, 130 interrupted."""

app = typer.Typer(
    name="tonnage",
    help="Tells you, before you run it, what a deep-learning program will need on any GPU.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("estimate")(estimate_command)
app.command("recommend")(recommend_command)
app.command("allocate")(allocate_command)
app.command("split")(split_command)
app.command("deploy")(deploy_command)
app.command("status")(status_command)
app.command("logs")(logs_command)
app.command("stop")(stop_command)
app.command("configure")(configure_command)
app.command("configure-server")(configure_server_command)
app.command("simulate")(simulate_command)
app.command("profile")(profile_command)
app.command("pack")(pack_command)
app.command("fit")(fit_command)
app.command("accuracy")(accuracy_command)
app.command("gpus")(gpus_command)
app.command("doctor")(doctor_command)


def _cluster_app() -> typer.Typer:
    from tonnage.cli.cluster import check_command, schema_command
    from tonnage.cli.cluster_agent import agent_command
    from tonnage.cli.cluster_measure import measure_command, statistics_command

    cluster = typer.Typer(help="Describe and measure nodes, GPUs and links in cluster.yaml.", no_args_is_help=True)
    cluster.command("check")(check_command)
    cluster.command("schema")(schema_command)
    cluster.command("measure")(measure_command)
    cluster.command("statistics")(statistics_command)
    cluster.command("agent")(agent_command)
    return cluster


def _bench_app() -> typer.Typer:
    from tonnage.cli.bench_data import export_command, import_command, show_command
    from tonnage.cli.bench_run import run_command

    bench = typer.Typer(help="The benchmark database: what was measured on real hardware.", no_args_is_help=True)
    bench.command("run")(run_command)
    bench.command("show")(show_command)
    bench.command("export")(export_command)
    bench.command("import")(import_command)
    return bench


def _servers_app() -> typer.Typer:
    from tonnage.cli.servers import add_command, list_command, remove_command

    servers = typer.Typer(help="The configuration servers whose labels are deployed.", no_args_is_help=True)
    servers.command("add")(add_command)
    servers.command("list")(list_command)
    servers.command("remove")(remove_command)
    return servers


def _serve_app() -> typer.Typer:
    from tonnage.cli.serve import SERVE_HELP, ServeGroup, run_command
    from tonnage.cli.serve_files import containerfile_command, schema_command
    from tonnage.cli.serve_tune import tune_command

    serve = typer.Typer(help=SERVE_HELP, cls=ServeGroup)
    serve.command("run")(run_command)
    serve.command("tune")(tune_command)
    serve.command("schema")(schema_command)
    serve.command("containerfile")(containerfile_command)
    return serve


app.add_typer(_servers_app(), name="servers")
app.add_typer(_serve_app(), name="serve")
app.add_typer(_cluster_app(), name="cluster")
app.add_typer(_bench_app(), name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tonnage {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Tells you, before you run it, what a deep-learning program will need on any GPU."""


def main() -> None:
    """Run the command and turn every error into one sentence, a hint and the documented exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of the stack, so that captures end as well
    debug = "--debug" in sys.argv[1 : sys.argv.index("--") if "--" in sys.argv else None]
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()  # here, where a reader that went away is no failure
    except TonnageError as error:
        if debug:
            raise
        _say(error)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = _reader_is_gone()
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):  # rich ends the process itself then
            raise
        code = _reader_is_gone()
    except Exception as error:
        code = _usage(error)
        if code is None:
            raise
    if code == 130:  # typer turns Ctrl-C into this code by itself
        print("interrupted", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _reader_is_gone() -> int:
    """As with `tonnage gpus | head`: nothing more can be said, and nothing went wrong."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    return 0


def _say(error: TonnageError) -> None:
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)


def _usage(error: Exception) -> int | None:
    """Errors of the command line itself, as click knows them; None for everything else."""
    show, code = getattr(error, "format_message", None), getattr(error, "exit_code", None)
    if show is None or not isinstance(code, int):
        return None
    if not show():
        return code  # no command was given: the help is printed already
    context = getattr(error, "ctx", None)
    print(f"error: {show()}", file=sys.stderr)
    print(f"hint: {context.command_path if context else 'tonnage'} --help shows what it takes", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
