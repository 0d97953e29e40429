"""Redaction: replace secrets in a document by placeholders.

Every string is searched: texts, field names, arguments, nested JSON, base64, percent and Unicode escapes. A secret gets
the same placeholder everywhere, so references between items survive. Encrypted fields and binary files cannot be
searched and are reported. Sources of the patterns: the issuers' token formats as collected in gitleaks'
config/gitleaks.toml (MIT); RFC 7468 (PEM), 7519 (JWT), 6750 and 7617 (Bearer, Basic), 3986 (user information),
5321 (addresses), 4291 (IPv6); ISO/IEC 7812 (cards), ISO 13616 (IBAN), E.164 (telephone).
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Annotated, Any, NamedTuple, Protocol
from urllib.parse import unquote

from convo.errors import InputFault
from convo.history.items import Json
from convo.inspect.serialize import ConversationDocument, document_from_json, document_to_json
from convo.report import HIDDEN, Count, Wire
from convo.secrets import API_KEY_PATTERN, PRIVATE_KEY_PATTERN, SECRET_LABEL_PATTERN, WEB_TOKEN_PATTERN, is_secret_name

PLACEHOLDER_PREFIX = "[redacted-"
"""The prefix of every placeholder; a placeholder is not searched again."""


class SecretPattern(Protocol):
    """The methods of a regular expression that redaction uses."""

    @property
    def groupindex(self) -> Mapping[str, int]: ...

    def sub(self, repl: Callable[[re.Match[str]], str], string: str, /) -> str: ...


class SecretRule(NamedTuple):
    """One rule: `is_valid` confirms a match of the pattern."""

    kind: str
    pattern: SecretPattern
    is_valid: Callable[[str], bool] = lambda text: True

    def has_match(self, text: str) -> bool:
        """Whether `text` contains a secret of this kind."""
        matches: list[str] = []

        def collect(match: re.Match[str]) -> str:
            matches.append(match[0])
            return match[0]

        self.pattern.sub(collect, text)
        return any(map(self.is_valid, matches))


def is_luhn_valid(text: str) -> bool:
    """Whether the last digit is the check digit of the others. Source: ISO/IEC 7812-1, annex B"""
    digits = [int(char) for char in text if char.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) if index % 2 else digit for index, digit in enumerate(reversed(digits)))
    return len(digits) in (13, 14, 15, 16, 19) and len(set(digits)) > 1 and sum(doubled) % 10 == 0


def is_iban_valid(text: str) -> bool:
    """Whether an IBAN's check digits are correct. Source: ISO 13616-1"""
    plain = "".join(text.split())
    if not 15 <= len(plain) <= 34:
        return False
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


MIN_IPV6_CHARS = 6
"""Characters; a shorter match, or one without a digit, is more often a name in a program than an address."""


def is_machine_address(text: str) -> bool:
    """Whether it is the address of one machine; loopback and unspecified addresses are the same on all machines."""
    if ":" in text and not (len(text) >= MIN_IPV6_CHARS and any(char.isdigit() for char in text)):
        return False
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


CREDENTIAL_RULES = (
    SecretRule("private-key", re.compile(PRIVATE_KEY_PATTERN)),
    SecretRule("api-key", re.compile(rf"(?<![A-Za-z0-9_-])(?:{API_KEY_PATTERN})")),
    SecretRule("token", re.compile(rf"(?<![A-Za-z0-9_-])(?:{WEB_TOKEN_PATTERN})")),
    SecretRule("token", re.compile(r"(?i)\b(?:bearer|basic)\s+(?P<secret>(?!\[redacted-)[A-Za-z0-9._~+/=-]{8,})")),
    SecretRule(
        "password",
        re.compile(
            r"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@\[\]\"']{0,128}:(?P<secret>(?!\[redacted-)[^\s/\"']{1,256}?)@"
        ),
    ),
    SecretRule(
        "password", re.compile(r"(?i)\b(?:set-)?cookie[\"'`]*\s{0,4}:\s{0,4}(?P<secret>(?!\[redacted-)[^\r\n\"'`]{6,})")
    ),
    SecretRule(
        "password",
        re.compile(
            rf"(?i){SECRET_LABEL_PATTERN}"
            r"(?P<quote>\\{0,3}[\"'`])(?P<secret>(?!\[redacted-)[^\r\n\"'\\`]{6,200})(?P=quote)"
        ),
    ),
    SecretRule(
        "password",
        re.compile(
            rf"(?i){SECRET_LABEL_PATTERN}[\"'\\`]*"
            r"(?P<secret>(?!\[redacted-|bearer\b|basic\b)[^\s\"'\\`,;<>]{6,})"
        ),
    ),
)
"""The kinds of secrets that give access."""

SECRET_RULES = (
    *CREDENTIAL_RULES,
    SecretRule("email", re.compile(r"(?<![\w.+-])[\w.!#$%&*+/=?^{|}~-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}")),
    SecretRule("iban", re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b"), is_iban_valid),
    SecretRule("card", re.compile(r"(?<![\w.])[3-6](?:[ -]?\d){12,18}(?![\w])"), is_luhn_valid),
    SecretRule("phone", re.compile(r"(?<![\w+])\+[1-9](?:[ ().-]{0,2}\d){7,14}(?!\w)")),
    SecretRule("ip", re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)"), is_machine_address),
    SecretRule(
        "ip", re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f]*:)[0-9A-Fa-f:]{3,39}(?:%\w+)?(?![\w:])"), is_machine_address
    ),
)


CUSTOM_KIND = "own"
"""The kind of a secret that a user's own pattern found."""

API_WORD_FIELDS = frozenset({"type", "role", "object", "status", "strategy", "version"})
"""Fields with values that the API defines; a user's own pattern must not change them."""

API_WORD = re.compile(r"[a-z][a-z0-9_.]{0,39}")


class SecretReplacement(NamedTuple):
    """The number of secrets of one kind replaced at one location: "item 3", "name", "link 1".

    The items have the numbers of the text for reading, if the document has one.
    """

    kind: str
    location: Annotated[str, Wire("where")]
    occurrences: Annotated[Count, Wire("count")]


@dataclass(frozen=True, slots=True)
class RedactionResult:
    """A document without its secrets.

    replacements:         with --redact: the replaced data
    unchecked_locations:  with --redact: content that was not searched, because it is encrypted or not text
    """

    document: Annotated[ConversationDocument, HIDDEN]
    replacements: Annotated[tuple[SecretReplacement, ...], Wire("redacted")]
    unchecked_locations: Annotated[tuple[str, ...], Wire("not_looked_into")]


def redact_document(document: ConversationDocument, custom_patterns: Sequence[SecretPattern] = ()) -> RedactionResult:
    """Replace every secret in `document` that `SECRET_RULES` or the user's own patterns find.

    Raises InputFault if a value is nested too deeply to be searched.
    """
    try:
        return _redact_document_parts(document, custom_patterns)
    except RecursionError as error:
        raise InputFault("a value is nested too deeply to be searched for secrets") from error


def _redact_document_parts(document: ConversationDocument, custom_patterns: Sequence[SecretPattern]) -> RedactionResult:
    redactor = Redactor((*(SecretRule(CUSTOM_KIND, pattern) for pattern in custom_patterns), *SECRET_RULES))
    data = document_to_json(document)
    transcript = [
        entry._replace(item=redactor.at_location(f"item {number}").redact_value(entry.item))
        for number, entry in enumerate(document.transcript, 1)
    ]
    # the transcript contains the items, and readers see its numbers: no secret is counted again
    item_redactor = replace(redactor, counts={}, unchecked_locations={}) if transcript else redactor
    items = [
        item_redactor.at_location(f"item {number}").redact_value(item)
        for number, item in enumerate(data.pop("items"), 1)
    ]
    links = [
        redactor.at_location(f"link {number}").redact_value(link) for number, link in enumerate(data.pop("links"), 1)
    ]
    head = {name: redactor.at_location(name).redact_field(name, value) for name, value in data.items()}
    replacements = tuple(SecretReplacement(*key, count) for key, count in redactor.counts.items())
    redacted = replace(document_from_json({**head, "items": items, "links": links}), transcript=tuple(transcript))
    return RedactionResult(redacted, replacements, tuple(redactor.unchecked_locations))


@dataclass
class Redactor:
    """Redacts one document and remembers the placeholder of each secret.

    location:  the part of the document that is being redacted
    """

    rules: tuple[SecretRule, ...]
    location: str = ""
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    unchecked_locations: dict[str, None] = field(default_factory=dict)
    _placeholder_by_secret: dict[str, str] = field(default_factory=dict)
    _count_by_kind: dict[str, int] = field(default_factory=dict)

    def at_location(self, location: str) -> "Redactor":
        self.location = location
        return self

    def redact_value(self, value: Json) -> Any:
        """Return `value` without secrets, including names and values of its fields."""
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, list):
            return [self.redact_value(item) for item in value]
        if isinstance(value, Mapping):
            return {
                self.redact_text(name): self.redact_field(name, inner, siblings=value) for name, inner in value.items()
            }
        return self._make_placeholder("card", str(int(value))) if _is_card_number(value) else value

    def redact_field(self, name: str, value: Json, siblings: Mapping[str, Json] | None = None) -> Any:
        """Redact the value of a field; some names define how."""
        # In an object with "logprob", "token" is a token of the output.
        if is_secret_name(name) and "logprob" not in (siblings or {}):
            return self._redact_secret_field(value)
        if not isinstance(value, str):
            return self.redact_value(value)
        if name in API_WORD_FIELDS and API_WORD.fullmatch(value):
            return value
        plain = join_base64_lines(name, value)
        redacted = self.redact_text(plain)
        if redacted != plain:
            return redacted
        if name == "encrypted_content" or (is_base64_file(name, value) and _decode_base64_text(value) is None):
            self.unchecked_locations[self.location] = None
        return value

    def _redact_secret_field(self, value: Json) -> Any:
        """Replace the whole value of a field that has the name of a secret."""
        if isinstance(value, list):
            return [self._redact_secret_field(item) for item in value]
        if isinstance(value, Mapping):
            return {self.redact_text(name): self._redact_secret_field(inner) for name, inner in value.items()}
        if value is None or isinstance(value, bool) or value == "" or str(value).startswith(PLACEHOLDER_PREFIX):
            return value
        return self._make_placeholder("password", str(value))

    def redact_text(self, text: str) -> str:
        """Redact a string: as JSON if it is an object or list, and inside the files that it embeds."""
        container = _parse_json_container(text)
        if container is not None:
            redacted = self.redact_value(container)
            text = text if redacted == container else json.dumps(redacted, ensure_ascii=False)
        text = DATA_URL.sub(self._redact_data_url, text)
        if DATA_URL.fullmatch(text):
            return text
        return self._apply_rules(redact_escapes(redact_base64_runs(text, self.redact_text), self._apply_rules))

    def _apply_rules(self, text: str) -> str:
        for rule in self.rules:
            text = rule.pattern.sub(lambda match, rule=rule: self._replace_match(match, rule), text)  # type: ignore[misc]
        return text

    def _replace_match(self, match: re.Match[str], rule: SecretRule) -> str:
        text = match[0]
        if not text or not rule.is_valid(text):
            return text
        if "secret" not in rule.pattern.groupindex or match["secret"] is None:
            return text if text.startswith(PLACEHOLDER_PREFIX) else self._make_placeholder(rule.kind, text)
        start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
        return text[:start] + self._make_placeholder(rule.kind, match["secret"]) + text[end:]

    def _redact_data_url(self, match: re.Match[str]) -> str:
        """Redact a data URL: its content if that is text; otherwise the location is reported as unchecked."""
        prefix, data = match[0][: match.start("data") - match.start()], match["data"]
        text = _decode_base64_text(data)
        if text is None:
            self.unchecked_locations[self.location] = None
            return prefix + self._apply_rules(data) if set("-_").intersection(data) else match[0]
        redacted = self.redact_text(text)
        return match[0] if redacted == text else prefix + encode_base64_text(redacted)

    def _make_placeholder(self, kind: str, secret: str) -> str:
        if secret not in self._placeholder_by_secret:
            self._count_by_kind[kind] = self._count_by_kind.get(kind, 0) + 1
            self._placeholder_by_secret[secret] = f"{PLACEHOLDER_PREFIX}{kind}-{self._count_by_kind[kind]}]"
        key = (kind, self.location)
        self.counts[key] = self.counts.get(key, 0) + 1
        return self._placeholder_by_secret[secret]


def count_replacements(replacements: Iterable[SecretReplacement]) -> dict[str, int]:
    """Return the number of replacements of each kind."""
    counts: dict[str, int] = {}
    for replacement in replacements:
        counts[replacement.kind] = counts.get(replacement.kind, 0) + replacement.occurrences
    return counts


def _is_card_number(value: Json) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        return False
    digits = str(int(value))
    return digits[0] in "3456" and is_luhn_valid(digits)


def _parse_json_container(text: str) -> Json:
    """Parse a string that is a JSON object or list; None for every other string."""
    if not text.lstrip().startswith(("{", "[")) or text.startswith(PLACEHOLDER_PREFIX):
        return None
    try:
        value: Json = json.loads(text)
    except ValueError:
        return None
    return value


RedactText = Callable[[str], str]
"""Returns a text without its secrets."""

DATA_URL = re.compile(
    r"data:(?P<kind>[\w.+/-]*)(?:;[\w.-]+(?:=(?:[\w.-]*|\"[^\"]*\"))?)*;base64,(?P<data>[\w+/=-]*)",
    re.IGNORECASE | re.ASCII,
)
"""A file embedded in a text."""

BASE64_RUN = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{24,}={0,2}(?![\w+/=-])", re.ASCII)
"""A run that may be base64 of a text; the base64 of a secret is not shorter."""

FILE_FIELDS = frozenset({"file_data", "data", "b64_json", "result"})
"""Fields that hold a file in base64 without a `data:` prefix."""

BASE64_TEXT = re.compile(r"[\w+/=\r\n-]+", re.ASCII)

MIN_FILE_CHARS = 64
"""Characters; a shorter value of such a field is a word."""

LINE_ENDS = re.compile(r"[\r\n]+")
URL_SAFE_TO_STANDARD = str.maketrans("-_", "+/")

ASCII_ESCAPE = re.compile(r"\\u00([2-7][0-9a-fA-F])")
ESCAPED_CHARS = ('"', "\\", "\x7f")
"""Characters that would mean something else without their escape."""

NON_SPACE = re.compile(r"\S+")
PERCENT_ESCAPE = re.compile(r"%[2-7][0-9a-fA-F]")


def _decode_base64_text(data: str) -> str | None:
    """Decode base64 of either alphabet, with or without padding; None if the result is not text."""
    encoded = "".join(data.split()).rstrip("=").translate(URL_SAFE_TO_STANDARD)
    try:
        text = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return None if "\0" in text else text


def encode_base64_text(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")


def is_base64_file(name: str, value: str) -> bool:
    """Whether a field holds the bytes of a file."""
    return name in FILE_FIELDS and len(value) >= MIN_FILE_CHARS and BASE64_TEXT.fullmatch(value) is not None


def join_base64_lines(name: str, value: str) -> str:
    """Remove the line breaks from a file's base64; other values are returned unchanged."""
    if "\n" not in value or not (value.startswith("data:") or is_base64_file(name, value)):
        return value
    joined = LINE_ENDS.sub("", value)
    return joined if DATA_URL.fullmatch(joined) or is_base64_file(name, joined) else value


def redact_base64_runs(text: str, redact: RedactText) -> str:
    """Redact the text that the base64 runs in `text` encode."""

    def redact_run(match: re.Match[str]) -> str:
        decoded = _decode_base64_text(match[0])
        if not decoded or not all(char.isprintable() or char in "\t\r\n" for char in decoded):
            return match[0]
        redacted = redact(decoded)
        return match[0] if redacted == decoded else encode_base64_text(redacted)

    return BASE64_RUN.sub(redact_run, text)


def redact_escapes(text: str, redact: RedactText) -> str:
    """Redact `text` with its escapes decoded, if that hides anything."""
    decoded = ASCII_ESCAPE.sub(_unescape_char, text)
    if decoded != text and (redacted := redact(decoded)) != decoded:
        text = redacted
    return (
        NON_SPACE.sub(lambda match: _redact_percent_escapes(match[0], redact), text)
        if PERCENT_ESCAPE.search(text)
        else text
    )


def _redact_percent_escapes(word: str, redact: RedactText) -> str:
    if not PERCENT_ESCAPE.search(word):
        return word
    decoded = unquote(word)
    redacted = redact(decoded)
    return word if redacted == decoded else redacted


def _unescape_char(match: re.Match[str]) -> str:
    char = chr(int(match[1], 16))
    return match[0] if char in ESCAPED_CHARS else char
