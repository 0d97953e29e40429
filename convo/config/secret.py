"""Keys, and how they are kept out of sight.

A settings file holds the name of a variable, the environment holds the key, and whoever holds the
key here holds a `Secret`: it prints as stars, in a traceback too, and gives its text only to the
line that asks for it by `reveal`.
"""

import re
from collections.abc import Mapping

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

IN_A_URL = re.compile(
    r"(?P<before>\b(?:https?:/{1,2}[^\s:/@]*:(?!\d{1,5}(?:[/?#\s'\"]|$))|(?!https?:)[a-z][a-z0-9+.-]*:/{1,2}[^\s:/]*:))"
    r"(?P<secret>[^\n]*)(?=@)",
    re.IGNORECASE,
)
"""A password before the last "@" of a line: signs that a URL does not allow may be in it."""

IN_A_PARAMETER = re.compile(
    r"(?P<before>(?:[?&](?:api[-_]?key|(?:access_)?token|key|secret|sig)|\b(?:ssl)?password)\s*=\s*)"
    r"(?P<secret>'[^']*'|[^\s&'\"]+)",
    re.IGNORECASE,
)

LONG = 20
"""Characters from which a name that mixes cases and digits is taken for a key."""


class Secret:
    """A text that is never shown by accident."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the request or connection that needs it."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def without_passwords(text: str) -> str:
    """`text` with stars in place of passwords in URLs and connection strings, for what is printed or logged."""
    if ":/" in text:
        text = IN_A_URL.sub(r"\g<before>***", text)
    return IN_A_PARAMETER.sub(r"\g<before>***", text) if "=" in text else text


def secret_in(environ: Mapping[str, str], variable: str | None) -> Secret | None:
    """What `variable` holds, without space around it; None when it is unset or empty."""
    text = environ.get(variable, "").strip() if variable else ""
    return Secret(text) if text else None


def names_a_variable(text: str) -> bool:
    """Whether `text` can be a variable's name and does not look like a key pasted in its place.

    Keys of several providers (gsk_..., hf_..., plain hex) have the form of a name. They are long
    and mix cases and digits as no name of a variable does.
    """
    return VARIABLE.fullmatch(text) is not None and not (len(text) >= LONG and _is_mixed(text))


def _is_mixed(text: str) -> bool:
    digit = any(sign.isdigit() for sign in text)
    lower = any(sign.islower() for sign in text)
    upper = any(sign.isupper() for sign in text)
    return (lower and (upper or digit)) or (digit and "_" not in text)
