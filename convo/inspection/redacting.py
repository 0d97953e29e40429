"""Secrets taken out of a document before anybody else sees it.

Every string is looked at: words, names of fields, titles, arguments, and JSON, text files and whatever
else is spelled otherwise inside a string. The same secret gets the same placeholder wherever it stands,
so that what is left can still be followed: a call and its output keep their tie although its id was an
address. What is sealed, and images and other files, cannot be looked into, and are counted as such.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from convo.errors import InputFault
from convo.inspection.document import Document, as_whole, from_whole
from convo.inspection.encoded import INLINE, decoded, encoded, escapes_told, in_one_line, is_file, runs_told
from convo.inspection.secrets import MARK, RULES, SECRET_NAME, Pattern, Rule, luhn
from convo.items import Json

OWN = "own"
"""The kind of what a pattern of the user's own found."""

WORDS_OF_THE_API = frozenset({"type", "role", "object", "status", "strategy", "version"})
"""Fields that hold words of the API; a pattern of the user's own must not take them for something else."""

PLAIN_WORD = re.compile(r"[a-z][a-z0-9_.]{0,39}")


class Replaced(NamedTuple):
    """How often a kind of secret was taken out of one place: "item 3", "name", "link 1"."""

    kind: str
    where: str
    times: int


@dataclass(frozen=True, slots=True)
class Redacted:
    """A document without its secrets; `unseen` are the places with something that cannot be looked into."""

    document: Document
    replaced: tuple[Replaced, ...]
    unseen: tuple[str, ...]


def redact(document: Document, own: Sequence[Pattern] = ()) -> Redacted:
    """Take everything out of `document` that `RULES`, or patterns of the user's own, call a secret.

    raises:  InputFault  something in it is nested too deeply to be looked through
    """
    try:
        return _redacted(document, own)
    except RecursionError as wrong:
        raise InputFault("something in it is nested too deeply to be looked through for secrets") from wrong


def _redacted(document: Document, own: Sequence[Pattern]) -> Redacted:
    pen = Pen((*(Rule(OWN, pattern) for pattern in own), *RULES))
    whole = as_whole(document)
    items = [pen.at(f"item {at}").value(item) for at, item in enumerate(whole.pop("items"), 1)]
    links = [pen.at(f"link {at}").value(link) for at, link in enumerate(whole.pop("links"), 1)]
    head = {name: pen.at(name).field(name, value) for name, value in whole.items()}
    counted = tuple(Replaced(*named, count) for named, count in pen.counts.items())
    return Redacted(from_whole({**head, "items": items, "links": links}), counted, tuple(pen.unseen))


@dataclass
class Pen:
    """Goes over one document and remembers which placeholder stands for what.

    where:   the place that is being gone over
    """

    rules: tuple[Rule, ...]
    where: str = ""
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    unseen: dict[str, None] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)

    def at(self, where: str) -> "Pen":
        self.where = where
        return self

    def value(self, value: Json) -> Any:
        """`value` without secrets, its fields and their names too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if isinstance(value, Mapping):
            return {self.text(name): self.field(name, inner, beside=value) for name, inner in value.items()}
        return self._placeholder("card", str(int(value))) if _is_card(value) else value

    def field(self, name: str, value: Json, beside: Mapping[str, Json] | None = None) -> Any:
        """The value of a field: some names tell what it is."""
        if SECRET_NAME.fullmatch(name) and "logprob" not in (beside or {}):
            return self._named(value)
        if not isinstance(value, str):
            return self.value(value)
        if name in WORDS_OF_THE_API and PLAIN_WORD.fullmatch(value):
            return value
        plain = in_one_line(name, value)
        told = self.text(plain)
        if told != plain:
            return told
        if name == "encrypted_content" or (is_file(name, value) and decoded(value) is None):
            self.unseen[self.where] = None
        return value

    def _named(self, value: Json) -> Any:
        """What stands in a field that has a secret's name: all of it is one."""
        if isinstance(value, list):
            return [self._named(one) for one in value]
        if isinstance(value, Mapping):
            return {self.text(name): self._named(inner) for name, inner in value.items()}
        if value is None or isinstance(value, bool) or value == "" or str(value).startswith(MARK):
            return value
        return self._placeholder("password", str(value))

    def text(self, text: str) -> str:
        """A string without secrets: as JSON where it is some, inside the file where it holds one."""
        found = _json_in(text)
        if found is not None:
            inner = self.value(found)
            text = text if inner == found else json.dumps(inner, ensure_ascii=False)
        text = INLINE.sub(self._file, text)
        if INLINE.fullmatch(text):
            return text
        return self._words(escapes_told(runs_told(text, self.text), self._words))

    def _words(self, text: str) -> str:
        for rule in self.rules:
            text = rule.pattern.sub(lambda match, rule=rule: self._replaced(match, rule), text)  # type: ignore[misc]
        return text

    def _replaced(self, match: re.Match[str], rule: Rule) -> str:
        whole = match[0]
        if not whole or not rule.fits(whole):
            return whole
        if "secret" not in rule.pattern.groupindex or match["secret"] is None:
            return whole if whole.startswith(MARK) else self._placeholder(rule.kind, whole)
        begin, end = match.start("secret") - match.start(), match.end("secret") - match.start()
        return whole[:begin] + self._placeholder(rule.kind, match["secret"]) + whole[end:]

    def _file(self, match: re.Match[str]) -> str:
        """A file that stands in the text: gone over where it is text, left where nobody can tell."""
        begins, data = match[0][: match.start("data") - match.start()], match["data"]
        words = decoded(data)
        if words is None:
            self.unseen[self.where] = None
            return begins + self._words(data) if set("-_").intersection(data) else match[0]
        told = self.text(words)
        return match[0] if told == words else begins + encoded(told)

    def _placeholder(self, kind: str, secret: str) -> str:
        if secret not in self._names:
            self._numbers[kind] = self._numbers.get(kind, 0) + 1
            self._names[secret] = f"{MARK}{kind}-{self._numbers[kind]}]"
        counted = (kind, self.where)
        self.counts[counted] = self.counts.get(counted, 0) + 1
        return self._names[secret]


def total(replaced: Iterable[Replaced]) -> dict[str, int]:
    """How often each kind was taken out."""
    sums: dict[str, int] = {}
    for one in replaced:
        sums[one.kind] = sums.get(one.kind, 0) + one.times
    return sums


def _is_card(value: Json) -> bool:
    """Whether a number is a card's."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        return False
    digits = str(int(value))
    return digits[0] in "3456" and luhn(digits)


def _json_in(text: str) -> Json:
    """The object or list that a string is; None for every other string."""
    if not text.lstrip().startswith(("{", "[")) or text.startswith(MARK):
        return None
    try:
        found: Json = json.loads(text)
    except ValueError:
        return None
    return found
