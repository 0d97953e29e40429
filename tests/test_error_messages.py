"""The form of the error messages and hints.

`python -m tests.docs.errors` prints all of them. Messages that a client of the API receives over HTTP use the
wording of that API and therefore have another form.
"""

import re

from convo.errors import (
    Conflict,
    ConvoError,
    EndpointFault,
    Interrupted,
    RequestRefused,
    WindowExceeded,
)
from tests.docs.errors import VALUE, ErrorMessage, error_classes, error_messages

API_MODULES = (
    "convo.responses_api.",
    "convo.endpoints.remote",
    "convo.chat.endpoint_factory",
)
HTTP_MODULES = ("convo.server.", "convo.models.scripted")

WITHOUT_HINT = {
    ConvoError: "the root; nothing is made of it alone",
    EndpointFault: "what the endpoint said comes with a code of its own",
    Interrupted: "whoever stopped it knows what to do next",
}

NAMES = ("CONVO_", "EDITOR", "JSON", "OAuth", "OpenAI", "PostgreSQL", "SQLite", "SHA", "{...}", "URL", "UTF", "TOML")
"""Names in upper case with which a message may start."""


def collect_error_messages() -> list[ErrorMessage]:
    """The messages in our own wording."""
    return [one for one in error_messages() if not one.location.startswith((*API_MODULES, *HTTP_MODULES))]


def test_a_message_starts_in_lower_case_and_ends_without_a_full_stop() -> None:
    offending = [
        one
        for one in collect_error_messages()
        if one.message
        and (re.search(r"[.?]$|\w!$", one.message) or (one.message[0].isupper() and not one.message.startswith(NAMES)))
    ]
    assert offending == []


def test_a_message_is_one_line_without_pleas_or_blame() -> None:
    pattern = re.compile(r"\n|\b(please|sorry|oops|invalid|illegal|bad|cannot proceed)\b", re.IGNORECASE)
    assert [one for one in collect_error_messages() if one.message and pattern.search(one.message)] == []


def test_every_error_has_a_hint_without_a_full_stop() -> None:
    without = {error for error in error_classes() if not error.hint}
    assert without == set(WITHOUT_HINT)
    steps = [error.hint for error in error_classes()] + [
        one.hint for one in collect_error_messages() if one.hint not in (None, VALUE)
    ]
    assert [step for step in steps if step.endswith(".") and not step.endswith("...")] == []
    assert [step for step in steps if "\n" in step] == []


def test_a_hint_adds_to_the_message() -> None:
    assert [one for one in collect_error_messages() if one.message and one.message == one.next_step] == []


def test_every_class_has_a_unique_code_in_lower_case() -> None:
    codes = [error.code for error in error_classes() if "code" in vars(error)]
    assert len(set(codes)) == len(codes)
    assert [code for code in codes if not re.fullmatch(r"[a-z_]+", code)] == []


def test_exit_codes_are_the_documented_ones() -> None:
    assert {error.exit for error in error_classes()} == {1, 2, 5, 130}


def test_a_hint_for_a_shell_has_no_command_of_the_prompt_and_one_with_a_handle_has_another_hint_there() -> None:
    for error in error_classes():
        assert not re.search(r"(?<!\S)/[a-z]+", error.hint), error
        if "HANDLE" in error.hint:
            assert error.prompt_hint.startswith("/"), error
        assert "HANDLE" not in error.prompt_hint, error


def test_a_new_hint_replaces_the_hints_of_the_class_in_every_place() -> None:
    error = WindowExceeded("a/b", 3, 2).replace_hint("use a file")
    assert (error.hint, error.prompt_hint) == ("use a file", "")
    assert Conflict("moved").prompt_hint == ""  # its class has a hint of its own, and StateFault's is not inherited


def test_an_alternative_is_added_to_the_hint_of_every_place() -> None:
    error = RequestRefused("No.")
    error.add_hint("remove that setting")
    assert error.hint == f"{RequestRefused.hint}, or remove that setting"
    assert error.prompt_hint == f"{RequestRefused.prompt_hint}, or remove that setting"
