"""Option groups: headings in Typer's help, parsed values, and defaults."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from convo.cli.app import App, HandleArgument, OptionalText, flag_option, value_option


@dataclass(frozen=True)
class Manner:
    warmly: bool = flag_option("-w --warmly", "Mean it.")
    bowing: bool | None = flag_option("--bow/--no-bow", "Bow, too.", default=None)
    tongue: OptionalText = value_option("--tongue", "NAME", "In which language.", default="english")
    times: int | None = value_option("--times", "N", "More than once.", min=1)


HiddenOption = Annotated[bool, typer.Option("--secret", hidden=True)]

app = App()


@app.command()
def greet(
    handle: HandleArgument, *, manner: Annotated[Manner, "Manner"], secret: HiddenOption = False, loud: bool = False
) -> None:
    """Say good day to somebody."""
    print(handle, manner, loud)


@pytest.mark.parametrize(
    ("argv", "manner", "loud"),
    [
        ([], Manner(), False),
        (["-w", "--loud"], Manner(warmly=True), True),
        (["--no-bow", "--tongue", "german"], Manner(bowing=False, tongue="german"), False),
        (["--bow", "--times", "2"], Manner(bowing=True, times=2), False),
    ],
)
def test_a_group_has_the_given_values_and_otherwise_its_defaults(argv: list[str], manner: Manner, loud: bool) -> None:
    got = CliRunner().invoke(app, ["Ada", *argv])
    assert (got.exit_code, got.stdout) == (0, f"Ada {manner} {loud}\n")


def test_a_value_below_the_minimum_of_an_option_is_refused() -> None:
    assert CliRunner().invoke(app, ["Ada", "--times", "0"]).exit_code == 2


HELP = """\
Usage: greet [OPTIONS] HANDLE

  Say good day to somebody.

Arguments:
  HANDLE  Session, resp_..., conv_..., @last, @recorded or file.  [required]

Manner:
  -w, --warmly      Mean it.
  --bow / --no-bow  Bow, too.
  --tongue NAME     In which language.  [default: english]
  --times N         More than once.  [x>=1]

Options:
  --loud / --no-loud  [default: no-loud]
  -h, --help          Show this message and exit.
"""


def test_the_help_lists_arguments_groups_and_other_options_and_omits_hidden_ones() -> None:
    assert CliRunner().invoke(app, ["--help"], prog_name="greet").output == HELP


def test_options_of_a_group_are_listed_in_order_under_its_heading() -> None:
    panels = [(one.name, getattr(one, "rich_help_panel", None)) for one in typer.main.get_command(app).params]
    grouped = [(name, "Manner") for name in ("warmly", "bowing", "tongue", "times")]
    assert panels == [("handle", None), *grouped, ("secret", None), ("loud", None)]


def test_one_group_can_be_used_by_two_commands_under_two_headings() -> None:
    def praise(*, how: Annotated[Manner, "How to praise"]) -> None: ...
    def scold(*, how: Annotated[Manner, "How to scold"]) -> None: ...

    new_app = App()
    new_app.command()(praise)
    new_app.command()(scold)

    commands = typer.main.get_group(new_app).commands
    panels = {
        name: {getattr(one, "rich_help_panel", None) for one in command.params} for name, command in commands.items()
    }
    assert panels == {"praise": {"How to praise"}, "scold": {"How to scold"}}


def test_a_command_without_groups_gets_its_context_and_options() -> None:
    new_app = App()

    @new_app.command()
    def plain(
        ctx: typer.Context,
        loud: bool = False,
        times: int = value_option("-n --times", "N", "How often.", default=1, max=3, panel="Count"),
    ) -> None:
        print(ctx.info_name, loud, times)

    assert CliRunner().invoke(new_app, ["--loud"], prog_name="plain").output == "plain True 1\n"
    assert CliRunner().invoke(new_app, ["-n", "4"]).exit_code == 2
    assert "Count:\n  -n, --times N  How often.  [default: 1; x<=3]" in CliRunner().invoke(new_app, ["--help"]).output


def test_a_command_may_have_some_options_of_a_group_with_a_help_of_its_own() -> None:
    new_app = App()

    @new_app.command()
    def praise(*, how: Annotated[Manner, "How", {"tongue": "In a language.", "warmly": None}]) -> None:
        print(how)

    assert CliRunner().invoke(new_app, ["-w"]).output == f"{Manner(warmly=True)}\n"
    assert CliRunner().invoke(new_app, ["--bow"]).exit_code == 2
    help_text = CliRunner().invoke(new_app, ["--help"]).output
    assert "-w, --warmly   Mean it.\n  --tongue NAME  In a language." in help_text
