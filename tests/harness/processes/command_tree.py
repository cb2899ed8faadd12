"""The tree of commands, walked as click itself walks it."""

from collections.abc import Iterator

import click

Path = tuple[str, ...]


def every(command: click.Command, path: Path = ()) -> Iterator[tuple[Path, click.Command]]:
    """Each command and each group, with the words that lead to it."""
    yield path, command
    if not isinstance(command, click.Group):
        return
    ctx = click.Context(command)
    for name in command.list_commands(ctx):
        child = command.get_command(ctx, name)
        assert child is not None
        yield from every(child, (*path, name))


def leaves(root: click.Command) -> dict[Path, click.Command]:
    """Every command that does something."""
    return {path: one for path, one in every(root) if not isinstance(one, click.Group)}


def groups(root: click.Command) -> dict[Path, click.Group]:
    return {path: one for path, one in every(root) if isinstance(one, click.Group)}
