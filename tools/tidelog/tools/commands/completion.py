"""`tidelog completion`: the script that makes a shell complete our commands and options."""

import click
from click.shell_completion import get_completion_class

from tidelog.tools.completing import COMPLETION_VARIABLE
from tidelog.tools.output import Command, emit_json, json_option

VERSION = 1


@click.command(
    cls=Command,
    examples=(
        'eval "$(tidelog completion bash)"',
        "tidelog completion fish > ~/.config/fish/completions/tidelog.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def completion(ctx: click.Context, shell: str, *, as_json: bool) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    script = kind(ctx.find_root().command, {}, "tidelog", COMPLETION_VARIABLE).source()
    if as_json:
        emit_json({"version": VERSION, "shell": shell, "script": script})
    else:
        click.echo(script)
