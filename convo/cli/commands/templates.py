"""`convo templates`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, JsonOption

app = App()

EXAMPLES = """
Examples:
  convo templates                        list the templates with their variables
  convo templates show review            print a template
  convo templates path                   print the folder of the templates
  $EDITOR "$(convo templates path review)"
  git diff | convo chat -t review --var language=Python

A template is a TOML file with prompt, system, model, params and vars. $input is the message of the user, $name or
${name} a variable, $$ a dollar sign; vars has default values. Without $input the message follows the prompt.
"""

TemplateArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the template.")]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def templates_command(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List and show the templates for convo chat -t."""
    if ctx.invoked_subcommand is None:
        templates_list_command(as_json)


@app.command("list")
def templates_list_command(as_json: JsonOption = False) -> None:
    """List the templates with their variables."""
    from convo.cli.templates import print_templates

    print_templates(as_json=as_json)


@app.command("show")
def templates_show_command(template: TemplateArgument) -> None:
    """Print the file of a template, after a check."""
    from convo.cli.templates import print_template

    print_template(template)


@app.command("path")
def templates_path_command(
    template: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of the template.", show_default=False)
    ] = None,
) -> None:
    """Print the folder of the templates, or the path of one, even if it does not exist."""
    from convo.cli.templates import get_templates_folder
    from convo.config.templates import get_template_path

    folder = get_templates_folder()
    typer.echo(str(folder if template is None else get_template_path(folder, template)))
