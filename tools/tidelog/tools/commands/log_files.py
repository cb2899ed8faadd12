"""`tidelog log`: looks into the files of logs."""

import click

from tidelog.tools.commands.log_dump import dump
from tidelog.tools.commands.log_verify import verify
from tidelog.tools.output import Group


@click.group(
    "log",
    cls=Group,
    examples=("tidelog log dump orders:0", "tidelog log verify"),
)
def log() -> None:
    """Show and check the files of logs, with or without their broker running."""


log.add_command(dump)
log.add_command(verify)
