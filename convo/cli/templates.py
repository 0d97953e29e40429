"""`convo templates`: list and show the templates of the user."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from convo.cli.output import print_json, print_line, print_notice
from convo.config.paths import AppPaths
from convo.config.templates import (
    Template,
    get_template_path,
    list_template_names,
    load_template,
    parse_template,
    read_template,
)
from convo.errors import ConvoError
from convo.terminal.tables import Column, render_table
from convo.terminal.terminal import detect_display, escape_control_chars


def get_templates_folder() -> Path:
    """Return the folder of the templates, existing or not. Raises InvalidSettings."""
    return AppPaths.from_environ(os.environ).templates


def print_templates(*, as_json: bool) -> None:
    """Print each template with its variables, or with the error of its file. Raises InvalidSettings."""
    folder = get_templates_folder()
    entries = [(name, _load_or_error(folder, name)) for name in list_template_names(folder)]
    if as_json:
        print_json([_build_template_report(folder, name, entry) for name, entry in entries])
    elif entries:
        columns = [
            Column("template", [name for name, _ in entries], style="id"),
            Column("variables", [_format_variables(entry) for _, entry in entries]),
            Column("model", [(entry.model or "-") if isinstance(entry, Template) else "-" for _, entry in entries]),
            Column("text", [_format_first_line(entry) for _, entry in entries]),
        ]
        print_line(render_table(columns, detect_display(sys.stdout, os.environ)))
    else:
        print_notice(f"no templates in {folder}; add a file NAME.toml with a prompt")


def print_template(name: str) -> None:
    """Print the file of a template. Raises the errors of `load_template`."""
    folder = get_templates_folder()
    content = read_template(folder, name)
    parse_template(name, get_template_path(folder, name), content)
    print_line(escape_control_chars(content.decode("utf-8-sig").rstrip("\n")))


def _load_or_error(folder: Path, name: str) -> Template | ConvoError:
    try:
        return load_template(folder, name)
    except ConvoError as error:
        return error


def _format_variables(entry: Template | ConvoError) -> str:
    """Format the variables: with a default as "language=French", the message as "input"."""
    if isinstance(entry, ConvoError):
        return "-"
    named = [
        f"{name}={entry.defaults[name]}" if name in entry.defaults else name
        for name in (*entry.variables, *(["input"] if entry.uses_input else []))
    ]
    return escape_control_chars(", ".join(named)) or "-"


def _format_first_line(entry: Template | ConvoError) -> str:
    text = entry.message if isinstance(entry, ConvoError) else entry.prompt or entry.instructions or "-"
    return escape_control_chars(text.strip().partition("\n")[0])


class VariableReport(NamedTuple):
    """A variable of a template.

    default:  null: --var has to set the variable
    """

    name: str
    default: str | None


class TemplateReport(NamedTuple):
    """A template.

    model:       model of the template, or null for the default model
    variables:   variables in the order of their use, without $input
    uses_input:  whether the template contains $input and needs a message; null for an invalid file
    error:       why the file is not a template, or null
    """

    name: str
    path: str
    model: str | None = None
    variables: Sequence[VariableReport] = ()
    uses_input: bool | None = None
    error: str | None = None


def _build_template_report(folder: Path, name: str, entry: Template | ConvoError) -> TemplateReport:
    path = str(get_template_path(folder, name))
    if isinstance(entry, ConvoError):
        return TemplateReport(name, path, error=entry.message)
    variables = [VariableReport(variable, entry.defaults.get(variable)) for variable in entry.variables]
    return TemplateReport(name, path, entry.model, variables, entry.uses_input)
