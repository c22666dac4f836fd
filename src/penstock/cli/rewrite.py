"""`penstock rewrite`: a definition orchestrated in another way (SPEC 2.5)."""

from __future__ import annotations

import click

from penstock.cli.definitions import found_file, read_definition
from penstock.cli.output import COMPLETED, give_json


@click.command("rewrite")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option(
    "--to",
    "way",
    type=click.Choice(["control", "data", "event", "rule"]),
    default="control",
    show_default=True,
    help="By links, by data flow, by bus events or by rules.",
)
def rewrite_command(file: str, way: str) -> int:
    """Print a definition orchestrated in another way.

    By links, data flow, events or rules, with the same tasks and the same outcome.

    \b
    Example:
      penstock rewrite rules.yaml --to control > control.json

    Exit status: 3 if the other way cannot say the same; the message names what stands in the way.
    """
    from typing import cast

    from penstock.dsl.rewrite import Way, rewrite

    give_json(rewrite(read_definition(str(found_file(file))), cast("Way", way)))
    return COMPLETED
