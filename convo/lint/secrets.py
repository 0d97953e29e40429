"""Lint rule for secrets in a RunState: findings name the location and the kind, never the value.

The Agents SDK writes the run's context into a state and, with `include_tracing_api_key`, the key for traces.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from convo.history.items import Json
from convo.inspect.redaction import CREDENTIAL_RULES, PLACEHOLDER_PREFIX
from convo.lint.model import LintIssue, LintView, RepairChange
from convo.secrets import is_secret_name

SECRET_IN_STATE = "secret-in-state"  # noqa: S105  a rule's code

SECRET_KIND_NAMES = {
    "private-key": "a private key",
    "api-key": "an API key",
    "token": "a token",
    "password": "a password",
}
"""The kinds of `CREDENTIAL_RULES`; addresses and card numbers are not searched for here."""

OPAQUE_FIELDS = frozenset({"encrypted_content"})
"""Fields whose value only its issuer can read."""

MIN_SECRET_CHARS, MAX_CACHED_CHARS = 8, 100
"""Characters: no rule matches a shorter secret; texts up to 100 repeat often, so their kind is cached."""

IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


class ExposedSecret(NamedTuple):
    """The JSON path of a secret within the document, and its description."""

    path: str
    description: str


def find_exposed_secrets(document: Mapping[str, Json]) -> tuple[ExposedSecret, ...]:
    """Return the secrets in a document, in its order. A field name that is itself a secret is written as `*`."""
    return tuple(_iter_secrets(document))


def _iter_secrets(document: Json) -> Iterator[ExposedSecret]:
    stack: list[tuple[str, str, Json]] = [("", "", document)]
    while stack:
        path, name, value = stack.pop()
        if isinstance(value, Mapping):
            for field in value:
                if description := _kind_of_text(field):
                    yield ExposedSecret(f"{path}.*", description)
            members = [
                # In an object with "logprob", "token" is a token of the output.
                (f"{path}{_path_step(field)}", "" if "logprob" in value else field, member)
                for field, member in value.items()
            ]
            stack += reversed(members)
        elif isinstance(value, list):
            stack += reversed([(f"{path}[{index}]", name, member) for index, member in enumerate(value)])
        elif (
            isinstance(value, str)
            and name not in OPAQUE_FIELDS
            and (description := _kind_by_field_name(name, value) or _kind_of_text(value))
        ):
            yield ExposedSecret(path, description)


def _path_step(field: str) -> str:
    if _kind_of_text(field):
        return ".*"
    return f".{field}" if IDENTIFIER.fullmatch(field) else f"[{field!r}]"


def _kind_by_field_name(name: str, value: str) -> str:
    """Return the description of a value whose field has the name of a secret; "" for none."""
    text = value.strip()
    is_secret = is_secret_name(name) and text and PLACEHOLDER_PREFIX not in text and not _kind_of_text(value)
    return f"a secret, by the name of its field ({name})" if is_secret else ""


def _kind_of_text(value: str) -> str:
    """Return the kind of the first secret in a text; "" for none."""
    if len(value) < MIN_SECRET_CHARS:
        return ""
    return _match_secret_kind_cached(value) if len(value) <= MAX_CACHED_CHARS else _match_secret_kind(value)


def _match_secret_kind(value: str) -> str:
    return next((SECRET_KIND_NAMES[rule.kind] for rule in CREDENTIAL_RULES if rule.has_match(value)), "")


_match_secret_kind_cached = lru_cache(maxsize=4096)(_match_secret_kind)


def check_secret_in_state(view: LintView) -> Iterator[LintIssue]:
    """Report each value in the source RunState that looks like a secret."""
    for path, description in view.exposed_secrets:
        yield LintIssue(f"the file seems to contain {description}", field=path)


def fix_secret_in_state(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Drop the findings: a history built from the items has no RunState around it, and the file does not change."""
    reason = "the repaired history has no context; texts of messages are not changed"
    return replace(view, exposed_secrets=()), [
        RepairChange(SECRET_IN_STATE, "dropped", f"{issue.message}: {reason}") for issue in issues
    ]
