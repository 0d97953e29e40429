"""Fields of a request: which ones users may set, and the settings for all models and for one model.

`[request]` has settings for every model, `[models."provider/model"]` for one. Both have the names of the options of
`convo chat`; `param` has every other field. `merge_request_parameters` combines them with the fields of a command.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any, NamedTuple

from convo.config.sections import list_model_names
from convo.config.values import (
    ChoiceCheck,
    InvalidValue,
    Layer,
    Setting,
    SettingKey,
    find_closest_word,
    format_setting_key,
    toml_type_name,
)

REQUEST_TABLE = "request"
MODELS_TABLE = "models"
PARAM_TABLE = "param"

FIELD_BY_SETTING: Mapping[str, str] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_output_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}
"""The field of a request for each setting; a dot names a member."""

EFFORT_FIELD = FIELD_BY_SETTING["reasoning_effort"]

REASONING_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The reasoning efforts of the API (`openai.types.shared.ReasoningEffort`); a server of chat models may have others."""

PROVIDERS_WITH_KNOWN_EFFORTS = ("openai", "azure", "anthropic")
"""Providers whose models have no other efforts."""

MAX_TEMPERATURE = 2

MAX_PARAMETER_LEVELS = 100
"""Levels of objects and lists in a field."""

PARAMETER_KEY = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)

LIST_PARAMETERS: Mapping[str, tuple[type, str]] = {
    "include": (str, '["reasoning.encrypted_content"]'),
    "tools": (dict, '[{"type": "web_search"}]'),
}
"""Fields that convo reads itself, the type of their members, and an example; the API checks all others."""

OBJECT_PARAMETERS = ("reasoning", "text")
"""Fields that are objects, of which convo sets single members."""

OWN_OPTIONS: Mapping[str, str] = {
    "model": "-m MODEL",
    "input": 'convo chat "..."',
    "instructions": "-s TEXT",
    "stream": "--no-stream prints the complete response",
    "store": "--store",
    "previous_response_id": "--from resp_...",
    "conversation": "--from conv_...",
    "background": "leave it out",
}
"""Fields that convo sets itself, which neither a setting nor --param can set, and the option for each."""


def check_parameter_name(name: str) -> None:
    """Check a name in the table `param`."""
    field, _, member = name.partition(".")
    if not PARAMETER_KEY.fullmatch(name):
        raise InvalidValue(
            "is not the name of a field of a request", hint='use a name like service_tier or "text.format"'
        )
    if field in OWN_OPTIONS:
        raise InvalidValue("cannot be set: convo sets this field itself", hint=OWN_OPTIONS[field])
    if field in OBJECT_PARAMETERS and not member:
        raise InvalidValue(
            f'is an object: set its members, as in param."{field}.{"summary" if field == "reasoning" else "format"}"'
        )
    for setting, own_field in FIELD_BY_SETTING.items():
        if name == own_field:
            raise InvalidValue(f"has its own setting, {setting}", hint=f"use {setting} instead")


def check_parameter_value(value: object) -> object:
    """Check a value in the table `param`: JSON, and no table, so that each member of an object has its own source."""
    if isinstance(value, dict):
        raise InvalidValue(
            "must be one value, not a table; quote a name with a dot to set a member",
            hint='param."reasoning.summary" = "auto"',
        )
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"must be a value that JSON can express, not {toml_type_name(value)}") from error
    if count_levels(value) > MAX_PARAMETER_LEVELS:
        raise InvalidValue(f"must have at most {MAX_PARAMETER_LEVELS} levels of arrays and tables")
    return value


def check_new_value(key: SettingKey, value: object) -> None:
    """Check a value that `convo config set` writes; a file that a user edits may have others, which are sent.

    Raises InvalidValue for a reasoning effort that the API does not know; a model of another provider may have its own.
    """
    name = key[2:] if key[0] == "profiles" else key
    if name[-1] != "reasoning_effort":
        return
    if name[0] == MODELS_TABLE and name[1].partition("/")[0] not in PROVIDERS_WITH_KNOWN_EFFORTS:
        return
    try:
        ChoiceCheck(*REASONING_EFFORTS)(value)
    except InvalidValue as error:
        command = f"convo config set {quote(format_setting_key(key))} {find_similar_effort(str(value))}"
        raise InvalidValue(str(error), hint=command) from error


def find_similar_effort(text: str) -> str:
    """Return the reasoning effort of the API that is most similar to `text`, "low" if none is."""
    return find_closest_word(text, REASONING_EFFORTS) or "low"


def check_list_parameter(name: str, value: object) -> None:
    """Check a field that convo reads itself; every other field has any value."""
    if name not in LIST_PARAMETERS or value is None:
        return
    member_type, example = LIST_PARAMETERS[name]
    if not isinstance(value, list) or not all(isinstance(member, member_type) for member in value):
        raise InvalidValue(f"is not a list like {example}")


def count_levels(value: object) -> int:
    """Count the levels of objects and lists in `value`."""
    levels, members = 0, [value]
    while containers := [member for member in members if isinstance(member, dict | list)]:
        members = [inner for one in containers for inner in (one.values() if isinstance(one, dict) else one)]
        levels += 1
    return levels


def iter_parameter_faults(merged: Mapping[SettingKey, Setting]) -> Iterator[tuple[Setting, InvalidValue]]:
    """Yield the values of `param` that do not fit their field, or that another value of the same table contradicts."""
    for key, setting in merged.items():
        if key[0] not in (REQUEST_TABLE, MODELS_TABLE) or key[-2] != PARAM_TABLE:
            continue
        try:
            check_list_parameter(key[-1], setting.value)
        except InvalidValue as error:
            yield setting, error
        parts = key[-1].split(".")
        for count in range(1, len(parts)):
            object_key = (*key[:-1], ".".join(parts[:count]))
            if object_key in merged:
                yield (
                    setting,
                    InvalidValue(f"and '{format_setting_key(object_key)}' are both set", hint="set one of them"),
                )


class RequestSetting(NamedTuple):
    """A field of the requests of one model, set by a settings file; `field` is "reasoning.effort"."""

    field: str
    setting: Setting


def find_unused_model_settings(entries: Sequence[Setting], providers: Collection[str]) -> list[Setting]:
    """Return the settings for models of providers that do not exist; they apply to no request."""
    return [
        setting
        for setting in entries
        if setting.key[0] == MODELS_TABLE and setting.key[1].partition("/")[0] not in providers
    ]


def format_unused_model_setting(setting: Setting, providers: Collection[str]) -> str:
    """Describe a setting of `find_unused_model_settings`."""
    provider = setting.key[1].partition("/")[0]
    closest = find_closest_word(provider, providers)
    advice = f"; did you mean {closest!r}?" if closest else ""
    return f"{format_setting_key(setting.key)} has no effect: there is no provider {provider!r}{advice}"


def find_request_settings(entries: Sequence[Setting], model: str) -> tuple[RequestSetting, ...]:
    """Return the fields that the settings set for a model, in the order of precedence, lowest first.

    entries:  the merged settings
    model:    "provider/model", without aliases

    A setting for the model precedes one for all models, unless only the latter is in the chosen profile.
    """
    chosen: dict[str, tuple[bool, RequestSetting]] = {}
    models = {setting.key[1] for setting in entries if setting.key[0] == MODELS_TABLE}
    named_model = next((name for name in list_model_names(model) if name in models), model)
    for setting in entries:
        is_for_model = setting.key[:2] == (MODELS_TABLE, named_model)
        if not is_for_model and setting.key[0] != REQUEST_TABLE:
            continue
        name = setting.key[2:] if is_for_model else setting.key[1:]
        field = name[1] if name[0] == PARAM_TABLE else FIELD_BY_SETTING[name[0]]
        found = is_for_model, RequestSetting(field, setting)
        if field not in chosen or _rank(*found) > _rank(*chosen[field]):
            chosen[field] = found
    return tuple(found for _, found in sorted(chosen.values(), key=lambda pair: (_rank(*pair), pair[1].field)))


def _rank(is_for_model: bool, found: RequestSetting) -> tuple[bool, bool]:
    return found.setting.source.layer is Layer.PROFILE, is_for_model


def split_refused_settings(
    settings: Sequence[RequestSetting], describe_refusal: Callable[[str, object], str | None]
) -> tuple[list[RequestSetting], list[tuple[Setting, str]]]:
    """Split the settings of a model: those that are sent, and those for all models that this one refuses.

    describe_refusal:  describes a field that the model refuses, as in `convo.usage.model_info`

    One that is set for this model is sent, so that it is refused by name.
    """
    refusals = {
        field: (setting, refusal)
        for field, setting in settings
        if setting.key[0] == REQUEST_TABLE and (refusal := describe_refusal(field, setting.value))
    }
    return [setting for setting in settings if setting.field not in refusals], list(refusals.values())


def merge_request_parameters(settings: Sequence[RequestSetting], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request: those of the settings, overridden by the given ones.

    settings:  lowest precedence first
    given:     of a command; the members of an object override single members
    """
    fields: dict[str, Any] = {}
    for field, setting in settings:
        assign_field(fields, field, setting.value)
    return override_fields(fields, given)


def describe_field_sources(settings: Sequence[RequestSetting], fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the setting of each field that has the value of a setting, as "request.top_p from config.toml, /folder".

    settings, fields:  the argument and the result of `merge_request_parameters`
    """
    return {
        field: f"{format_setting_key(setting.key)} {setting.source}"
        for field, setting in settings
        if get_request_field(fields, field) == setting.value
    }


def get_request_field(fields: Any, field: str) -> object:
    """Return a field of a request; "reasoning.effort" is the member `effort` of `reasoning`. None if it is not set."""
    for name in field.split("."):
        fields = fields.get(name) if isinstance(fields, Mapping) else None
    return fields


def assign_field(fields: dict[str, Any], field: str, value: object) -> None:
    """Set a field; "reasoning.effort" is the member `effort` of `reasoning`. A value in the way is replaced."""
    *path, last = field.split(".")
    for name in path:
        member = fields.get(name)
        fields[name] = fields = member if isinstance(member, dict) else {}
    fields[last] = value


def override_fields(fields: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `fields` overridden by the given ones; the members of an object override single members."""
    merged = dict(fields)
    for name, value in given.items():
        current = merged.get(name)
        merged[name] = {**current, **value} if isinstance(current, dict) and isinstance(value, dict) else value
    return merged
