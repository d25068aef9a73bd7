"""The command line: one thin module a command, loaded when it is called. Work is done elsewhere."""

import errno
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import click

from fscil_bench import __version__
from fscil_bench.errors import FscilError, unknown_name

COMMANDS = {
    "analyze": "fscil_bench.cli.analyze:analyze",
    "backbone": "fscil_bench.cli.backbone:backbone",
    "check": "fscil_bench.cli.check:check",
    "compare": "fscil_bench.cli.compare:compare",
    "data": "fscil_bench.cli.data:data",
    "fsl": "fscil_bench.cli.fsl:fsl",
    "leaderboard": "fscil_bench.cli.leaderboard:leaderboard",
    "ls": "fscil_bench.cli.ls:ls",
    "run": "fscil_bench.cli.run:run",
    "sweep": "fscil_bench.cli.sweep:sweep",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise unknown_name("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="fscil-bench")
@click.option("--debug", is_flag=True, help="Show the Python traceback of an error.")
def main(debug: bool) -> None:
    """Compare few-shot class-incremental learning methods on shared backbones and standard splits.

    \b
    First steps:
      fscil-bench run --method teen --dataset cub200
      fscil-bench compare --dataset cub200
      fscil-bench ls methods
    """


def entry() -> None:
    """Run the command line; every failure is one line on stderr and an exit code."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by the caller: nobody listens
            setattr(sys, stream, Path(os.devnull).open("w"))  # noqa: SIM115
    debug = "--debug" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        main(arguments, standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as leave:
        sys.exit(leave.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message())
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except click.ClickException as error:
        _fail(error.format_message(), 2)
    except BrokenPipeError:  # the reader of our output went away: nothing to tell it
        _drop_output()
        sys.exit(1)
    except FscilError as error:
        if debug:
            raise
        _fail(str(error), error.exit_code)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            _drop_output()
            where = error.filename or "where the output goes"
            _fail(f"cannot write to {where}: {error.strerror}. Free some space or choose another place", 1)
        _fail(f"{type(error).__name__}: {error}. This is a bug in fscil-bench or in a method: --debug shows where", 1)


def _drop_output() -> None:
    """What is not written yet cannot be; at the end of the process Python would try once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> None:
    click.echo("Error: " + " ".join(message.split()), err=True)
    sys.exit(code)
