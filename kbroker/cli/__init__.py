"""The `kbroker` command. Each subcommand is a module of its own, loaded when it is called."""

from __future__ import annotations

import click

COMMANDS = {
    "start": "Run a broker in the foreground.",
    "doctor": "Check whether a broker can run here, and what a data directory holds.",
    "ping": "Ask a broker whether it answers.",
}


class LazyGroup(click.Group):
    """Knows the names and help lines of its commands, and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        from importlib import import_module

        command: click.Command = import_module(f"kbroker.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if not asked:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"kbroker {version('kbroker')}")
    except PackageNotFoundError:
        click.echo("kbroker (run from its sources)")
    ctx.exit()


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def main() -> None:
    """A Kafka-wire-compatible broker: no JVM, no Docker."""
