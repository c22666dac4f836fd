"""The tree of commands, and the one place where errors become words and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from penstock.cli.output import (
    FAILED,
    INTERRUPTED,
    USAGE,
    Problem,
    complain,
    complain_of,
    printable,
)
from penstock.errors import PenstockError

SECTIONS: dict[str, dict[str, str]] = {
    "Run": {"run": "run", "start": "runs", "serve": "serve", "schedule": "schedules"},
    "Look": {"list": "reading", "show": "reading", "why": "reading", "history": "reading", "queues": "queues", "graph": "definitions"},
    "Act": {
        "signal": "runs", "submit": "runs", "pause": "runs", "resume": "runs", "cancel": "runs", "terminate": "runs",
        "retry": "control", "reset": "control", "migrate": "migrate", "fire": "control", "skip": "control", "fail": "control", "undo": "control",
        "attributes": "control", "complete": "control", "paused": "control", "batches": "control",
    },
    "Keep": {
        "erase": "data", "archive": "data", "restore": "data", "export": "data", "import": "data", "backup": "data",
    },
    "Check": {
        "verify": "verify", "diff": "diff", "rewrite": "rewrite", "plugins": "plugins", "audit": "reading", "explain": "definitions",
        "replay": "replay", "simulate": "simulate",
    },
}  # fmt: skip
"""Each command and the module of this package that has it."""
MODULES = {name: module for commands in SECTIONS.values() for name, module in commands.items()}


class Tree(click.Group):
    """Commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = MODULES.get(cmd_name)
        if module is None:
            return None
        found: Any = getattr(import_module(f"penstock.cli.{module}"), f"{cmd_name}_command")
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in MODULES and not args[0].startswith("-"):
            from penstock.cli.words import did_you_mean

            raise Problem(
                "usage",
                f"there is no command `{args[0]}`",
                hint=did_you_mean(args[0], MODULES) or "penstock --help shows them all",
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in SECTIONS.items():
            rows: list[tuple[str, str]] = []
            for name in commands:
                command = self.get_command(ctx, name)
                assert command is not None
                rows.append((name, command.get_short_help_str(70)))
            with formatter.section(section):
                formatter.write_dl(rows, col_max=12)


@click.command(
    "penstock",
    cls=Tree,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="penstock COMMAND --help shows an example of each.",
)
@click.version_option(package_name="penstock", message="penstock %(version)s")
def tree() -> None:
    """Durable workflows: verified before they run, never lost.

    \b
      penstock run order.yaml --app shop.py -i '{"sku": "A1"}'
      penstock why order
      penstock signal order approve true

    Runs live in a database: --store URL, or PENSTOCK_STORE, or sqlite:///penstock.db in this folder. Every command
    works while another process executes the runs. Results go to stdout, all else to stderr.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; gives the exit status: 0 completed, 1 failed, 2 usage, 3 refused, 4 unreachable."""
    printable()
    try:
        status = tree.main(
            args=None if arguments is None else list(arguments),
            prog_name="penstock",
            standalone_mode=False,
        )
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except Problem as problem:
        return complain(problem)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return USAGE
    except click.UsageError as error:
        return complain(_usage(error))
    except click.ClickException as error:
        return complain(Problem("usage", error.format_message()))
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except PenstockError as error:
        return complain_of(error)
    except Exception as error:
        if os.environ.get("PENSTOCK_DEBUG"):
            raise
        return complain(
            Problem(
                "internal",
                f"{type(error).__name__}: {error}",
                hint="this is a bug in Penstock; PENSTOCK_DEBUG=1 shows where",
                status=FAILED,
            )
        )


def _usage(error: click.UsageError) -> Problem:
    command = error.ctx.command_path if error.ctx is not None else "penstock"
    message = error.format_message().rstrip(".")
    hint = f"{command} --help shows how"
    if isinstance(error, click.NoSuchOption):
        message = f"{command} has no option `{error.option_name}`"
        from penstock.cli.words import did_you_mean

        hint = did_you_mean(error.option_name, error.possibilities or ()) or hint
    return Problem("usage", message, hint=hint)


if __name__ == "__main__":
    sys.exit(main())
