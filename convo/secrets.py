"""Secrets: what one looks like, by its form or by the name before it, and what is printed or stored in its place.

Text that is printed or logged (`redact_secrets`), fields of requests (`strip_secret_fields`), recorded HTTP
(`recordable_headers`, `recordable_url`). `convo.inspect.redaction` replaces secrets and personal data in documents, by
the same patterns. A `Secret` prints as stars; only `reveal()` returns its text.
"""

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_HIDDEN_TEXT = "***"
"""Printed in place of a secret."""

MAX_SECRET_CHARS = 4096
"""Characters beyond the shown part of a text that are searched, too: a secret may extend over its end."""

# The patterns are strings, compiled on first use: compiled by the import they took 2 ms of `convo sessions`.
_SENSITIVE_NAMES = (
    r"(?:api|access|secret|private|account|auth|signing|encryption|service|master)[_\- ]?keys?|"
    r"(?:access|auth|refresh|session|security|bearer|bot|id|csrf)[_\- ]?token|token|"
    r"(?:client|app|consumer|webhook|shared)?[_\- ]?secret|passw(?:or)?d|passphrase|pwd|credentials?|"
    r"(?:proxy[_\- ]?)?authorization|x[_\-]api[_\-]key|(?:set[_\-])?cookie|connection[_\- ]?string"
)
"""Names of secrets, as a field name or before a value in a text."""

_SECRET_NAME_PATTERN = rf"(?i)(?:.*[_\-. ])?(?:{_SENSITIVE_NAMES})"

PRIVATE_KEY_PATTERN = (
    r"-----BEGIN[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)?-----"
    r"[\s\S]*?(?:-----END[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)?-----|\Z)"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{58}|Private-Lines: *\d+\s+(?:[A-Za-z0-9+/=]{1,64}(?:\r?\n|\\n|\Z))+"
)

API_KEY_PATTERN = "|".join(
    (
        r"sk-[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic, OpenRouter, DeepSeek
        r"(?:gsk|hf|r8|xai|pplx|tvly|nvapi|fw|csk|co)[_-][A-Za-z0-9_-]{20,}",  # Groq, Hugging Face, xAI ...
        r"convo_[A-Za-z0-9_-]{43}",  # convo serve --new-key
        r"AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_.-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}",  # Google
        r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",  # AWS
        r"(?:gh[opsur]_|github_pat_)[A-Za-z0-9_]{20,}|gl(?:pat|dt|rt|soat|ptt|cbt)-[A-Za-z0-9_.-]{16,}",
        r"xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}",  # Slack
        r"(?:sk|rk|pk|whsec)_(?:live_|test_|prod_)?[A-Za-z0-9]{16,}",  # Stripe
        r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|key-[0-9a-f]{32}|[0-9a-f]{32}-us\d{1,2}",  # mail
        r"npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|dckr_pat_[A-Za-z0-9_-]{20,}|rubygems_[0-9a-f]{40,}",
        r"do[opr]_v1_[0-9a-f]{40,}|LTAI[A-Za-z0-9]{16,}|lin_api_[A-Za-z0-9]{30,}|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
        r"ATATT3[A-Za-z0-9_=-]{40,}|ATCTT3[A-Za-z0-9_=-]{40,}|hvs\.[A-Za-z0-9_-]{20,}|glc_[A-Za-z0-9+/=]{30,}",
        r"sntrys_[A-Za-z0-9+/=_-]{30,}|dapi[0-9a-f]{32}|EAA[A-Za-z0-9]{60,}|secret_[A-Za-z0-9]{40,}",
        r"\d{8,10}:AA[A-Za-z0-9_-]{30,}",  # Telegram
        r"[MNO][A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}",  # Discord
    )
)
"""Keys with the prefix, or the form, of their issuer; `convo.inspect.redaction` names the sources."""

WEB_TOKEN_PATTERN = r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,3}"  # noqa: S105  a pattern
"""A JSON web token (RFC 7519)."""

_WORD_START_PATTERN = "|".join(
    (
        r"(?<![A-Za-z0-9_])",
        r"(?<=[\s'\"=]-[A-Za-z])|(?<=^-[A-Za-z])",  # after the letter of an option
        r"(?<=\\[abfnrtv])|(?<=\\x[0-9a-f]{2})|(?<=\\u[0-9a-f]{4})|(?<=\\U[0-9a-f]{8})|(?<=[0-9]m)",  # after an escape
    )
)

_SHOWN_KEY_PATTERN = rf"{PRIVATE_KEY_PATTERN}|(?:{_WORD_START_PATTERN})(?:{API_KEY_PATTERN}|{WEB_TOKEN_PATTERN})"

_NAME_PART = r"(?=.{0,16}$)(?:[a-z]*(?:[A-Z][a-z]+){0,4}[A-Z]{0,3}|[A-Z]+)[0-9]{0,8}[A-Za-z]?|[0-9]{2}T[0-9]{2,6}"
"""A part of a name that only begins like a key: a few words and a number, as in hf-mirror-DeepSeek-R1-7B-20250128."""

_IPV6_HOST = r"\[[\w.%]*:[\w:.%]*\]"

_URL_PASSWORD = (
    rf"(?i)(?P<before>https?:/{{1,2}}(?!{_IPV6_HOST})[^\s:/@]{{0,512}}:(?!\d{{1,5}}[/?#\s'\"])"
    rf"|[a-z]:(?<!http:)(?<!https:)/{{1,2}}(?!{_IPV6_HOST})[^\s:/]{{0,512}}:"
    r"(?!\d{1,5}(?:[/?#][^\s@]{0,512})?['\"),.;:]{0,3}\s))"
    r"(?P<secret>(?!\s|\*\*\*@).*)"
)
"""A password in a text that an "@" follows, and no port: it may contain characters that are not allowed in a URL."""

_URL_USER = r"(?i)(?P<before>[a-z]:/{1,2})(?P<user>[^\s:/@?#'\"]{20,})(?=@)"

_URL_PATH_PART = r"(?P<before>(?<=[^/])[/?&=])(?P<user>[^/?#&=\s'\"]{20,})"
"""A part of the path or query of a URL that may be a token."""

_PARAMETER_PATTERN = (
    r"(?i)(?P<before>(?:[?&](?:api[-_]?key|(?:access_)?token|key|secret|sig)|\b(?:ssl)?password)\s*=\s*)"
    r"(?P<secret>'[^']*'|[^\s&'\"]+)"
)

SECRET_LABEL_PATTERN = rf"(?<![A-Za-z])(?:{_SENSITIVE_NAMES})\b[\"'\\`]*\s{{0,4}}(?:=>|:=|=|:|\bis\b)\s{{0,4}}"
"""The name of a secret, and the sign or word between it and the secret."""

_ASSIGNED_SECRET_PATTERN = (
    rf"(?i)(?P<before>(?:(?<![A-Za-z])|{_WORD_START_PATTERN})(?:{_SENSITIVE_NAMES})=)"
    r"(?P<secret>(?![.$*<{\[]|VALUE\b)[^\s&'\"`]{6,})"
)
"""NAME=SECRET, but not a placeholder such as `...` or `$(...)`."""

_PLAIN_KEY_PATTERN = r"(?a)\b(?=\w*\d)(?=\w*[A-Za-z])\w{20,}"
"""A word that may be a key without the prefix of its issuer."""

_KEY_REMAINS_PATTERN = r"\b(?:sk|pk|gsk|xai|key)-[\w*.-]{6,}|\bBearer\s+\S+|(?<!\S)\S*\*{3,}\S*"
"""A key as a server quotes it: a part of it may be stars already."""

_AUTHORIZATION_PATTERN = (
    r"(?P<before>\b(?i:bearer)\s+(?=\S*\d)"
    r"|\b(?i:basic)\s+(?=\S*[0-9=])(?=\S*[a-z])(?=\S*[A-Z])(?=[A-Za-z0-9+/]{8,}={0,2}(?![\w-]|\.\w)))"
    r"(?P<secret>[A-Za-z0-9._~+/=-]{8,})"
)
"""A bearer token, or base64 after `Basic`; not `basic python3.12`."""

_MIN_KEY_CHARS = 20
"""Characters from which a name with mixed case and digits is treated as a key."""


class Secret:
    """A text that is not shown in logs, messages or tracebacks."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, for the request or connection that needs it."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({_HIDDEN_TEXT})"

    def __str__(self) -> str:
        return _HIDDEN_TEXT

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def redact_secrets(text: str) -> str:
    """Replace secrets by stars, for text that is printed or logged.

    Hidden are keys with the prefix of their issuer, passwords and tokens in URLs, connection strings and HTTP headers,
    and the value after a name such as `api_key=`. A key without a prefix is like any other name and is shown.
    """
    # The name of a model or folder may begin like a key, such as hf-mirror-DeepSeek-R1, and was hidden.
    text = re.sub(_SHOWN_KEY_PATTERN, lambda match: match[0] if _is_plain_name(match[0]) else _HIDDEN_TEXT, text)
    # Text without these signs does not pay for the patterns below.
    if ":/" in text and "@" in text:
        text = "\n".join(map(_redact_url_password, re.sub(_URL_USER, _hide_token, text).split("\n")))
    if "=" in text:
        text = re.sub(_PARAMETER_PATTERN, rf"\g<before>{_HIDDEN_TEXT}", text)
        text = re.sub(_ASSIGNED_SECRET_PATTERN, rf"\g<before>{_HIDDEN_TEXT}", text)
    return re.sub(_AUTHORIZATION_PATTERN, rf"\g<before>{_HIDDEN_TEXT}", text)


def redact_server_address(address: str) -> str:
    """Replace secrets by stars in the URL or the command of an MCP server: many services give keys in the path."""
    return re.sub(
        r"(?i)\bhttps?://\S+", lambda url: re.sub(_URL_PATH_PART, _hide_token, url[0]), redact_secrets(address)
    )


def mask_key_remains(message: str) -> str:
    """Replace keys by stars in the message of a server, which may quote a part of a key."""
    return re.sub(_KEY_REMAINS_PATTERN, _HIDDEN_TEXT, message)


def is_secret(argument: str) -> bool:
    """Return whether an argument of a command line may contain a secret, also one as in `my password is ...`."""
    return (
        redact_secrets(argument) != argument
        or re.search(_PLAIN_KEY_PATTERN, argument) is not None
        or re.search(rf"(?i){SECRET_LABEL_PATTERN}[\"'\\`]*[^\s\"'\\`,;<>]{{6,}}", argument) is not None
    )


def _redact_url_password(line: str) -> str:
    """Replace a password before the last "@" of a line."""
    # The last one: a password may contain an "@" that is not encoded.
    before, at, after = line.rpartition("@")
    return re.sub(_URL_PASSWORD, rf"\g<before>{_HIDDEN_TEXT}", before) + at + after


def _hide_token(match: re.Match[str]) -> str:
    is_secret = _is_token(match["user"]) and not _is_plain_name(match["user"])
    return match["before"] + _HIDDEN_TEXT if is_secret else match[0]


def _is_plain_name(text: str) -> bool:
    """Return whether all parts of a text with the prefix of a key are words or short numbers."""
    return all(re.fullmatch(_NAME_PART, part) for part in re.split("[-_.]", text))


def _is_token(user: str) -> bool:
    """Return whether the user or a part of a URL is a token, and no name of a person, a role or a service account.

    A token contains a digit, and both cases or 20 letters and digits in a row; or it is hexadecimal, as a UUID is.
    """
    if re.fullmatch(r"(?i)[0-9a-f-]{32,}", user):
        return True
    has_long_run = re.search(r"[A-Za-z0-9]{20,}", user) is not None
    has_both_cases = user != user.lower() and user != user.upper()
    return re.search(r"[0-9]", user) is not None and (has_long_run or has_both_cases)


def is_secret_name(name: str) -> bool:
    """Return whether the value of a field, setting or option with this name is a secret."""
    return re.fullmatch(_SECRET_NAME_PATTERN, name) is not None


def read_secret(environ: Mapping[str, str], variable: str | None) -> Secret | None:
    """Return the value of a variable without surrounding space; None if it is unset or empty."""
    text = environ.get(variable, "").strip() if variable else ""
    return Secret(text) if text else None


def is_variable_name(text: str) -> bool:
    """Whether `text` is a valid variable name and does not look like a key in its place.

    Keys of several providers (gsk_..., hf_..., plain hex) are valid names. They are long and mix cases and digits as no
    variable name does.
    """
    return _VARIABLE_NAME.fullmatch(text) is not None and not (
        len(text) >= _MIN_KEY_CHARS and _has_mixed_characters(text)
    )


def _has_mixed_characters(text: str) -> bool:
    has_digit = any(char.isdigit() for char in text)
    has_lower = any(char.islower() for char in text)
    has_upper = any(char.isupper() for char in text)
    return (has_lower and (has_upper or has_digit)) or (has_digit and "_" not in text)


# -- fields of requests ----------------------------------------------------------------------------

SECRET_FIELDS = frozenset(
    {"authorization", "authorization_token", "headers", "extra_headers", "api_key", "access_token", "password"}
    | {"domain_secrets"}
)
"""Fields of a tool or of a request that must not be in a store, a log or a response."""

MCP_SERVERS_FIELD = "mcp_servers"
"""The field of Anthropic's requests with servers of tools, whose URLs are in `url`."""


def strip_secret_fields(value: Any, schemas: Container[str] = (), url_field: str = "server_url") -> Any:
    """Return `value` without credentials, at any depth.

    schemas:    fields that stay as they are: JSON schemas, whose properties may have any name
    url_field:  the field with the URL of a tool's server
    """
    if isinstance(value, list):
        return [strip_secret_fields(member, schemas, url_field) for member in value]
    if not isinstance(value, Mapping):
        return value
    return {
        name: member
        if name in schemas
        else strip_server_url(member)
        if name == url_field
        else strip_secret_fields(member, schemas, "url" if name == MCP_SERVERS_FIELD else "server_url")
        for name, member in value.items()
        if name not in SECRET_FIELDS
    }


def strip_server_url(url: Any) -> Any:
    """Return the URL of a tool's server as the real API shows it: its path or query may contain a credential."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
    except ValueError:
        return None
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", "")) or None


# -- recorded HTTP ---------------------------------------------------------------------------------

_UNRECORDED_HEADER = (
    r"auth|cookie|secret|passw|credential|signature|(?:api|access|session|subscription|security|goog|csrf)[-_]?(?:key|token)"
    r"|(?:^|[-_])(?:key|token|jwt)$|^sec-websocket-"
)
"""Names of headers that are not recorded; browsers send keys in Sec-WebSocket-Protocol."""

_UNRECORDED_PARAMETER = r"(?i)key|token|secret|passw|auth|credential|sig(?:nature)?$|jwt|code$"
"""Names of query parameters that are not recorded."""

_MIN_CREDENTIAL_CHARS = 8
"""Characters from which a value that was sent as a credential is removed from other headers and the query, too."""


def recordable_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers without credentials and cookies, as text; repeated ones are joined with a comma."""
    is_unrecorded = re.compile(_UNRECORDED_HEADER).search
    texts = [(name.decode("latin-1").lower(), value.decode("utf-8", "replace")) for name, value in headers]
    secrets = [
        part
        for name, value in texts
        if is_unrecorded(name)
        for part in value.split()
        if len(part) >= _MIN_CREDENTIAL_CHARS
    ]
    kept: dict[str, str] = {}
    for name, value in texts:
        if not is_unrecorded(name) and not any(secret in value for secret in secrets):
            kept[name] = f"{kept[name]}, {value}" if name in kept else value
    return kept


def recordable_url(url: str) -> str:
    """Return `url` without user, password, fragment and secret parameters."""
    parts = urlsplit(url)
    parameters = parse_qsl(parts.query, keep_blank_values=True)
    query = urlencode([(name, value) for name, value in parameters if not re.search(_UNRECORDED_PARAMETER, name)])
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, ""))
