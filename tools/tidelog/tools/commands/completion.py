"""`tidelog completion`: the script that makes a shell complete our commands and options."""

import click
from click.shell_completion import get_completion_class

from tidelog.tools.output import Command


@click.command(
    cls=Command,
    examples=(
        'eval "$(tidelog completion bash)"',
        "tidelog completion fish > ~/.config/fish/completions/tidelog.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    click.echo(kind(ctx.find_root().command, {}, "tidelog", "_TIDELOG_COMPLETE").source())
