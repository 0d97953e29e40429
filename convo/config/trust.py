"""Trust in a project's `.convo.toml`, and which URLs reach another machine.

The file comes with a clone, so it is untrusted input: until the user trusts its path and content, or
a folder above it, only the settings that `UNTRUSTED_RULES` allows are used. The rest is ignored and
listed in a `ProjectNotice`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from convo.config.schema import SETTINGS_SCHEMA, check_profile_name, get_check, iter_untrusted_settings
from convo.config.values import InvalidValue, Setting, SettingKey, SettingSource, format_setting_key

TRUST_COMMAND = "convo config trust"


class UntrustedRule(NamedTuple):
    """Whether an untrusted file may set a value, and the reason."""

    allowed: bool
    reason: str


UNTRUSTED_RULES: Mapping[str, UntrustedRule] = {
    "model": UntrustedRule(True, "a well-known provider's model by name; see `_is_well_known`"),
    "editing": UntrustedRule(True, "keys of the prompt: emacs, vi or plain"),
    "answers": UntrustedRule(True, "layout of responses in the terminal: markdown or plain"),
    "cache_diagnostics": UntrustedRule(False, "adds a field to requests"),
    "tenant": UntrustedRule(False, "selects the tenant whose conversations are read and written"),
    "compact_at": UntrustedRule(False, "a small value makes every turn pay for a compaction"),
    "redact": UntrustedRule(False, "replaces the user's own patterns, so that an export keeps secrets"),
    "providers": UntrustedRule(False, "sends conversations and keys to another server"),
    "aliases": UntrustedRule(False, "sends requests for the user's own names to another server"),
    "state_storage": UntrustedRule(False, "moves, deletes (ttl) or sends conversations, and PGPASSWORD with them"),
    "serve": UntrustedRule(False, "opens the user's store to other machines and other keys"),
    "mcp": UntrustedRule(False, "runs programs, and sends conversations to other servers"),
    "prices": UntrustedRule(False, "shows wrong costs"),
    "windows": UntrustedRule(False, "truncates or compacts the history that the model receives"),
    "request": UntrustedRule(False, "sends any field, such as tools on another server, and changes the cost"),
    "models": UntrustedRule(False, "sends any field, such as tools on another server, and changes the cost"),
    "limits": UntrustedRule(False, "lets a response use all memory and time of this machine, or ends each one early"),
    "trusted": UntrustedRule(False, "a file cannot trust itself"),
    "profile": UntrustedRule(False, "selects among the user's own profiles, with their store, tenant and servers"),
}
"""Every setting outside `profiles`. The same rules apply in each profile; a setting without a rule is ignored."""

_WELL_KNOWN_MODEL = r"(openai|anthropic|azure|deepseek)/[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}"
"""A model that an untrusted file may choose. No second slash: it is a name and never a path."""

_MAX_LISTED_KEYS = 8
_MAX_KEY_CHARS = 60
"""Limits of the line about ignored settings: the number of keys, and the characters of each."""


class Trust(Enum):
    """Whether the user trusts the current content of a project file."""

    TRUSTED = "trusted"
    CHANGED = "changed since it was trusted"
    UNKNOWN = "not trusted"


def determine_trust(path: Path, content: bytes, trusted_digest: str | None, folders: Sequence[Path]) -> Trust:
    """Return the trust in a project file with this content.

    path:            the real path of its folder, and its name
    trusted_digest:  the digest that the user trusted for the path; None without a record
    folders:         real paths of the folders that the user trusts
    """
    if is_in_folders(path, folders) or trusted_digest == sha256_hex(content):
        return Trust.TRUSTED
    return Trust.UNKNOWN if trusted_digest is None else Trust.CHANGED


def is_in_folders(path: Path, folders: Sequence[Path]) -> bool:
    """Whether `path` is inside one of `folders`."""
    return any(map(path.is_relative_to, folders))


def sha256_hex(content: bytes) -> str:
    """Return the SHA-256 of a file's content as hex digits."""
    from hashlib import sha256  # most folders have no project file to hash

    return sha256(content).hexdigest()


class ProjectNotice(NamedTuple):
    """A project file that is not used, or not fully.

    problem:  a sentence that names the file, without a final full stop
    ignored:  its ignored settings; a value is None if it is invalid or may be a secret
    hint:     a command or advice for the user
    """

    path: Path
    problem: str
    ignored: tuple[Setting, ...] = ()
    hint: str = TRUST_COMMAND

    @property
    def line(self) -> str:
        """The notice on one line, without control characters."""
        return f"{self.summary}; try: {escape_unprintable(self.hint)}"

    @property
    def summary(self) -> str:
        """The line without the hint."""
        if not self.ignored:
            return escape_unprintable(self.problem)
        shown_keys = [
            _shorten(escape_unprintable(format_setting_key(setting.key))) for setting in self.ignored[:_MAX_LISTED_KEYS]
        ]
        hidden_count = len(self.ignored) - len(shown_keys)
        keys = ", ".join(shown_keys) + (f" and {hidden_count} more" if hidden_count else "")
        return f"{escape_unprintable(self.problem)}, so these settings are ignored: {keys}"


def escape_unprintable(text: str) -> str:
    """Escape all characters that are not printable."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_KEY_CHARS else f"{text[:_MAX_KEY_CHARS]}…"


# -- filter of untrusted settings -------------------------------------------------------------------


class FilteredDocument(NamedTuple):
    """The allowed part and the ignored settings of an untrusted document."""

    allowed: Mapping[str, object]
    ignored: tuple[Setting, ...]


def filter_untrusted(document: Mapping[str, object], source: SettingSource) -> FilteredDocument:
    """Return the settings that an untrusted file may set. An allowed setting with an invalid value is ignored too."""
    own_names, ignored = _defined_names(document), list[Setting]()

    def filter_table(key: SettingKey, table: Mapping[str, object]) -> dict[str, object]:
        allowed: dict[str, object] = {}
        for name, value in table.items():
            if _is_allowed(name, value, own_names):
                allowed[name] = value
            elif key or name != "profiles":
                ignored.extend(
                    Setting(setting_key, setting_value, source)
                    for setting_key, setting_value in iter_untrusted_settings((*key, name), value)
                )
        return allowed

    allowed = filter_table((), document)
    if "profiles" in document:
        written_profiles = document["profiles"]
        tables = _valid_profiles(document)
        profiles = {name: filter_table(("profiles", name), table) for name, table in tables.items()}
        allowed["profiles"] = {name: table for name, table in profiles.items() if table}
        unusable: list[SettingKey] = [
            ("profiles", name) for name, _ in _table_items(written_profiles) if name not in tables
        ]
        unusable += [] if isinstance(written_profiles, dict) else [("profiles",)]
        ignored.extend(Setting(key, None, source) for key in unusable)
    return FilteredDocument(allowed, tuple(ignored))


def _valid_profiles(document: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return the profiles that have a valid name and are tables."""
    profiles: dict[str, dict[str, object]] = {}
    for name, table in _table_items(document.get("profiles")):
        try:
            check_profile_name(name)
        except InvalidValue:
            continue
        if isinstance(table, dict):
            profiles[name] = table
    return profiles


def _is_allowed(name: str, value: object, own_names: frozenset[str]) -> bool:
    rule = UNTRUSTED_RULES.get(name)
    if rule is None or not rule.allowed or name not in SETTINGS_SCHEMA:
        return False
    try:
        checked = get_check((name,))(value)
    except InvalidValue:
        return False
    return name != "model" or _is_well_known(str(checked), own_names)


def _is_well_known(model: str, own_names: frozenset[str]) -> bool:
    """Whether `model` is a model of a well-known provider that the file itself does not define."""
    match = re.fullmatch(_WELL_KNOWN_MODEL, model)
    return match is not None and match[1] not in own_names and model not in own_names


def _defined_names(document: Mapping[str, object]) -> frozenset[str]:
    """Return the names of all providers and aliases that a document defines."""
    tables = [document, *(table for _, table in _table_items(document.get("profiles")) if isinstance(table, dict))]
    return frozenset(
        name for table in tables for kind in ("providers", "aliases") for name, _ in _table_items(table.get(kind))
    )


def _table_items(value: object) -> Iterator[tuple[str, object]]:
    """Yield the items of a table; nothing for another value."""
    return iter(value.items() if isinstance(value, dict) else ())


# -- hosts ------------------------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Whether `host` is `localhost` or a literal loopback address. No name is resolved.

    An IPv6 address may be in brackets. Names below `localhost`, names with a final dot, short forms (127.1) and
    addresses with a zone are not loopback: their meaning depends on the resolver.
    """
    if host.lower() == "localhost":
        return True
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        return (address.ipv4_mapped or address).is_loopback
    return address.is_loopback and not bracketed


_POSTGRES_SCHEME_NAMES = ("postgresql", "postgres")


def is_remote_url(url: str) -> bool:
    """Whether data sent to `url`, of HTTP or PostgreSQL, can reach another machine.

    A PostgreSQL URL may name several servers, some of them in its query; one other machine is enough. A service file is
    not read and counts as another machine.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in _POSTGRES_SCHEME_NAMES:
            return not all(map(_is_local_postgres_host, _postgres_hosts(parts)))
        return not is_loopback(parts.hostname or "")
    except ValueError:
        return True


def _postgres_hosts(parts: SplitResult) -> Iterator[str]:
    """Yield the hosts of a PostgreSQL URL as libpq parses them; "?" for a host that is not known here."""
    for server in parts.netloc.rpartition("@")[2].split(","):
        # libpq decodes %2F in a host, which urlsplit leaves as it is
        yield (
            unquote(server).partition("]")[0].removeprefix("[")
            if server.startswith("[")
            else unquote(server.partition(":")[0])
        )
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in ("host", "hostaddr"):
            yield from value.split(",")
        if name in ("service", "servicefile"):
            yield "?"
        if name == "dbname" and ("=" in value or "://" in value):
            yield "?"


def _is_local_postgres_host(host: str) -> bool:
    """Whether a host is this machine. "" is the default socket; / or @ begins a socket's path or name."""
    return host == "" or host.startswith(("/", "@")) or is_loopback(host)
