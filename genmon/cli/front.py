"""The front door: the command table, and errors turned into one sentence and an exit code."""

from __future__ import annotations

import os
import sys

import click

from genmon import __version__
from genmon.cli.ctl import ctl
from genmon.cli.job import check, export, init, verify
from genmon.cli.log import COMMANDS as LOG_COMMANDS
from genmon.cli.run import EXIT_CODES, attach, engine, run, status
from genmon.cli.sweep import sweep
from genmon.cli.tells import tells
from genmon.errors import GenmonError


class FrontDoor(click.Group):
    """A group whose default command is `run`: `genmon RUN.toml --batch` needs no command name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `run` in front of anything that is not a command or a question to genmon itself."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h", "--version"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=FrontDoor,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, prog_name="genmon")
def genmon() -> None:
    """Run multi-day completion jobs on your own GPUs, and lose nothing.

    \b
      genmon --demo                a whole job on a simulated box, with the dashboard
      genmon init > run.toml       a run file for this machine
      genmon check run.toml        could it run?
      genmon run.toml              run it, with the dashboard (options: genmon run --help)
      genmon attach                the dashboard of a run that goes on
      genmon runs                  what ran, how fast, and what it cost
    """


for each in (run, engine, attach, status, init, check, verify, export, sweep, tells, ctl, *LOG_COMMANDS):
    genmon.add_command(each)


def main() -> None:
    """Run genmon; never shows a traceback for what a user can cause."""
    try:
        genmon.main(standalone_mode=False)
    except GenmonError as error:
        click.echo(f"genmon: {error}", err=True)
        raise SystemExit(error.exit_code) from None
    except click.ClickException as error:
        error.show()
        raise SystemExit(2) from None
    except (click.Abort, KeyboardInterrupt):
        click.echo("genmon: interrupted; the same command goes on where it ended", err=True)
        raise SystemExit(130) from None
    except BrokenPipeError:
        # The reader of our output left (head, less): nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        click.echo(f"genmon: {error.filename or 'the system'}: {error.strerror or error}", err=True)
        raise SystemExit(3) from None
