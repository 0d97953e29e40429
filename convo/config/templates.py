"""Templates of chats: a prompt, instructions, a model and parameters under a name.

A template is a TOML file in the folder `templates` beside the user's settings file:

    model = "openai/gpt-6.1-terra"
    system = "You translate into $language."
    prompt = "Translate: $input"
    params = { temperature = 0.2, "reasoning.effort" = "low" }
    vars = { language = "French" }

`$name` and `${name}` are variables, `$$` is a dollar sign, and `$input` is the message of the user.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from convo.config.loader import parse_settings_toml
from convo.config.request_settings import (
    FIELD_BY_SETTING,
    REQUEST_TABLE,
    assign_field,
    check_list_parameter,
    check_parameter_name,
    check_parameter_value,
)
from convo.config.schema import get_check
from convo.config.values import InvalidValue, check_text, find_closest_word, toml_type_name
from convo.errors import InvalidSettings, InvalidUsage, NotFound
from convo.runtime import open_nonblocking

TEMPLATE_SUFFIX = ".toml"

TEMPLATE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A name has no separator and begins with a letter or digit, so that it stays in the folder."""

MAX_TEMPLATE_BYTES = 256 * 1024

INPUT_VARIABLE = "input"
"""The variable with the message of the user."""

_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|(?P<bare>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})", re.ASCII)


class Template(NamedTuple):
    """A parsed template.

    prompt:        the message, with variables; None: the message is the user's
    instructions:  with variables
    parameters:    fields of every request
    defaults:      values of variables
    """

    name: str
    path: Path
    prompt: str | None = None
    instructions: str | None = None
    model: str | None = None
    parameters: Mapping[str, Any] = {}
    defaults: Mapping[str, str] = {}

    @property
    def variables(self) -> Sequence[str]:
        """The variables in the order of their use, without `input`."""
        return [name for name in self._list_all_variables() if name != INPUT_VARIABLE]

    @property
    def uses_input(self) -> bool:
        """Whether the template contains `$input`."""
        return INPUT_VARIABLE in self._list_all_variables()

    def _list_all_variables(self) -> Sequence[str]:
        return _list_variables(f"{self.instructions or ''}\n{self.prompt or ''}")


class ExpandedTemplate(NamedTuple):
    """The texts of a template with the values of its variables."""

    prompt: str | None
    instructions: str | None


def expand_template(template: Template, given: Mapping[str, str], message: str | None) -> ExpandedTemplate:
    """Insert the values of the variables; a value is not expanded again.

    given:    the values of --var, which precede the defaults
    message:  the value of `$input`; None without a message

    Raises InvalidUsage for a missing value, a message that is missing, or a value for an unknown variable.
    """
    example = f"convo chat -t {template.name}"
    for name in given:
        if name not in template.variables:
            closest = find_closest_word(name, template.variables)
            known = (
                f"did you mean {closest!r}?" if closest else f"its variables: {', '.join(template.variables) or 'none'}"
            )
            raise InvalidUsage(
                f"template {template.name!r} has no variable {name!r}; {known}",
                hint=f"convo templates show {template.name}",
            )
    values = {**template.defaults, **given}
    missing = [name for name in template.variables if name not in values]
    if missing:
        raise InvalidUsage(
            f"template {template.name!r} needs a value for {', '.join(missing)}",
            hint=f"{example} {' '.join(f'--var {name}=...' for name in missing)}",
        )
    if template.uses_input and not (message or "").strip():
        raise InvalidUsage(f"template {template.name!r} contains $input and needs a message", hint=f'{example} "..."')
    values[INPUT_VARIABLE] = message or ""
    return ExpandedTemplate(
        template.prompt and _insert_values(template.prompt, values),
        template.instructions and _insert_values(template.instructions, values),
    )


def _list_variables(text: str) -> list[str]:
    found = (match["bare"] or match["braced"] for match in _VARIABLE.finditer(text))
    return list(dict.fromkeys(name for name in found if name))


def _insert_values(text: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: "$" if match["dollar"] else values[match["bare"] or match["braced"]], text)


# -- files -----------------------------------------------------------------------------------------


def get_template_path(folder: Path, name: str) -> Path:
    """Return the path of a template, existing or not. Raises InvalidUsage for a text that is not a name."""
    if not TEMPLATE_NAME.fullmatch(name):
        raise InvalidUsage(
            f"{name!r} is not the name of a template",
            hint="use up to 64 letters, digits and . _ -; convo templates lists the names",
        )
    return folder / f"{name}{TEMPLATE_SUFFIX}"


def list_template_names(folder: Path) -> list[str]:
    """Return the names of the templates in a folder, sorted; none for a missing folder. Raises InvalidSettings."""
    try:
        files = os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InvalidSettings(f"{folder}: cannot be read ({error.strerror})") from error
    names = (file.removesuffix(TEMPLATE_SUFFIX) for file in files if file.endswith(TEMPLATE_SUFFIX))
    return sorted(name for name in names if TEMPLATE_NAME.fullmatch(name))


def load_template(folder: Path, name: str) -> Template:
    """Load the template called `name`.

    Raises NotFound for a missing one, InvalidUsage for a text that is not a name, InvalidSettings for an invalid file.
    """
    path = get_template_path(folder, name)
    return parse_template(name, path, read_template(folder, name))


def read_template(folder: Path, name: str) -> bytes:
    """Return the content of a template's file. Raises the errors of `load_template`."""
    path = get_template_path(folder, name)
    try:
        with open(path, "rb", opener=open_nonblocking) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidSettings(f"{path}: is not a regular file")
            content = file.read(MAX_TEMPLATE_BYTES + 1)
    except FileNotFoundError:
        closest = find_closest_word(name, list_template_names(folder))
        note = f"; did you mean {closest!r}?" if closest else ""
        raise NotFound("template", name, note=note, hint="convo templates") from None
    except IsADirectoryError:
        raise InvalidSettings(f"{path}: is not a regular file") from None
    except OSError as error:
        raise InvalidSettings(f"{path}: cannot be read ({error.strerror})") from error
    if len(content) > MAX_TEMPLATE_BYTES:
        raise InvalidSettings(f"{path}: is larger than {MAX_TEMPLATE_BYTES // 1024} KB, the limit of a template")
    return content


def parse_template(name: str, path: Path, content: bytes) -> Template:
    """Parse the content of a template's file. Raises InvalidSettings, which names the file and the key."""
    table = parse_settings_toml(content, str(path))
    if not table:
        raise InvalidSettings(f"{path}: is empty", hint="add a prompt")
    fields: dict[str, object] = {}
    for key, value in table.items():
        if key not in TEMPLATE_KEYS:
            closest = find_closest_word(key, TEMPLATE_KEYS)
            known = f"did you mean '{closest}'?" if closest else f"known keys: {', '.join(TEMPLATE_KEYS)}"
            raise InvalidSettings(f"{path}: no key '{key}'; {known}", hint=f'$EDITOR "$(convo templates path {name})"')
        field, parse = TEMPLATE_KEYS[key]
        if field in fields:
            raise InvalidSettings(f"{path}: 'system' and 'instructions' are both set", hint="set one of them")
        try:
            fields[field] = parse(value)
        except InvalidValue as error:
            raise InvalidSettings(f"{path}: '{key}' {error}", hint=error.hint) from error
    template = Template(name, path, **cast(Any, fields))
    for variable in template.defaults:
        if variable not in template.variables:
            raise InvalidSettings(f"{path}: 'vars' has {variable!r}, which neither prompt nor system contains")
    return template


def _parse_parameters(value: object) -> dict[str, Any]:
    """Parse the table `params`: the names of [request], or fields of a request."""
    fields: dict[str, Any] = {}
    setting_by_field = {field: setting for setting, field in FIELD_BY_SETTING.items()}
    table = _check_table(value)
    for name, member in table.items():
        if member_name := next((other for other in table if other.startswith(f"{name}.")), None):
            raise InvalidValue(f"has {name!r} and {member_name!r}", hint="set one of them")
        setting = setting_by_field.get(name, name)
        field = FIELD_BY_SETTING.get(setting, name)
        try:
            if setting in FIELD_BY_SETTING:
                checked = get_check((REQUEST_TABLE, setting))(member)
            else:
                check_parameter_name(name)
                checked = check_parameter_value(member)
                check_list_parameter(name, checked)
            assign_field(fields, field, checked)
        except InvalidValue as error:
            raise InvalidValue(f"has {name!r}, which {error}", hint=error.hint) from error
    return fields


def _parse_defaults(value: object) -> dict[str, str]:
    defaults: dict[str, str] = {}
    for name, member in _check_table(value).items():
        if not isinstance(member, str | int | float):
            raise InvalidValue(f"has {name!r}, which must be a string or a number, not {toml_type_name(member)}")
        if name == INPUT_VARIABLE:
            raise InvalidValue("cannot set input, which is the message of the user")
        defaults[name] = str(member).lower() if isinstance(member, bool) else str(member)
    return defaults


def _check_table(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise InvalidValue(f"must be a table, not {toml_type_name(value)}")
    return value


TEMPLATE_KEYS: Mapping[str, tuple[str, Callable[[object], object]]] = {
    "prompt": ("prompt", check_text),
    "system": ("instructions", check_text),
    "instructions": ("instructions", check_text),
    "model": ("model", check_text),
    "params": ("parameters", _parse_parameters),
    "vars": ("defaults", _parse_defaults),
}
"""The keys of a template's file: the field of `Template`, and the check of the value."""
