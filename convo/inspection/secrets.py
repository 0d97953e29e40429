"""What a secret looks like: one row a kind of it, in the order in which they are looked for.

A secret is known by the form that its issuer gave it, by its checksum, or by the name that stands in
front of it. Prose has none of these; a row that hides a harmless word now and then is kept where the
other mistake would be worse. Rows that find a part of the match name it `secret`.

source: the issuers' own descriptions of their tokens, as gitleaks' config/gitleaks.toml (MIT) gathers
them; RFC 7468 (PEM), RFC 7519 (JWT), RFC 6750 and 7617 (Bearer, Basic), RFC 3986 (user information),
RFC 5321 (addresses), ISO/IEC 7812 (cards), ISO 13616 (IBAN), RFC 4291 (IPv6), E.164 (telephone)
"""

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import NamedTuple, Protocol

MARK = "[redacted-"
"""How every placeholder begins; what stands there is not looked for again."""


class Pattern(Protocol):
    """As much of a regular expression as is used here."""

    @property
    def groupindex(self) -> Mapping[str, int]: ...

    def sub(self, repl: Callable[[re.Match[str]], str], string: str, /) -> str: ...


class Rule(NamedTuple):
    """One row: `fits` says of a match whether it is one."""

    kind: str
    pattern: Pattern
    fits: Callable[[str], bool] = lambda found: True

    def is_in(self, text: str) -> bool:
        """Whether `text` holds a secret of this kind."""
        found: list[str] = []

        def note(match: re.Match[str]) -> str:
            found.append(match[0])
            return match[0]

        self.pattern.sub(note, text)
        return any(map(self.fits, found))


def luhn(found: str) -> bool:
    """Whether the last of these digits is the check of the others. source: ISO/IEC 7812-1, annex B"""
    digits = [int(sign) for sign in found if sign.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) if at % 2 else digit for at, digit in enumerate(reversed(digits)))
    return len(digits) in (13, 14, 15, 16, 19) and len(set(digits)) > 1 and sum(doubled) % 10 == 0


def mod_97(found: str) -> bool:
    """Whether an IBAN's check digits are right. source: ISO 13616-1"""
    plain = "".join(found.split())
    if not 15 <= len(plain) <= 34:
        return False
    return int("".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])) % 97 == 1


SHORTEST_IPV6 = 6
"""Characters; what is shorter, or has no digit, is a name in some program more often than an address."""


def of_somebody(found: str) -> bool:
    """Whether it is an address of some machine; every machine calls itself by the others."""
    if ":" in found and not (len(found) >= SHORTEST_IPV6 and any(sign.isdigit() for sign in found)):
        return False
    try:
        address = ip_address(found)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def _issued(*forms: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9_-])(?:{'|'.join(forms)})")


NAMES = (
    r"(?:api|access|secret|private|account|auth|signing|encryption|service|master)[_\- ]?keys?|"
    r"(?:access|auth|refresh|session|security|bearer|bot|id|csrf)[_\- ]?token|token|"
    r"(?:client|app|consumer|webhook|shared)?[_\- ]?secret|passw(?:or)?d|passphrase|pwd|credentials?|"
    r"(?:proxy[_\- ]?)?authorization|x[_\-]api[_\-]key|(?:set[_\-])?cookie|connection[_\- ]?string"
)
"""What stands in front of a secret, as a field or in words."""

SECRET_NAME = re.compile(rf"(?i)(?:.*[_\-. ])?(?:{NAMES})")

RULES: tuple[Rule, ...] = (
    Rule(
        "private-key",
        re.compile(
            r"-----BEGIN[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)?-----"
            r"[\s\S]*?(?:-----END[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)?-----|\Z)"
            r"|AGE-SECRET-KEY-1[A-Z0-9]{58}|Private-Lines: *\d+\s+(?:[A-Za-z0-9+/=]{1,64}(?:\r?\n|\\n|\Z))+"
        ),
    ),
    Rule(
        "api-key",
        _issued(
            r"sk-[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic, OpenRouter, DeepSeek
            r"(?:gsk|hf|r8|xai|pplx|tvly|nvapi|fw|csk|co)[_-][A-Za-z0-9_-]{20,}",  # Groq, Hugging Face, xAI ...
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
        ),
    ),
    Rule("token", re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,3}")),
    Rule("token", re.compile(r"(?i)\b(?:bearer|basic)\s+(?P<secret>(?!\[redacted-)[A-Za-z0-9._~+/=-]{8,})")),
    Rule(
        "password",
        re.compile(
            r"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@\[\]\"']{0,128}:(?P<secret>(?!\[redacted-)[^\s/\"']{1,256}?)@"
        ),
    ),
    Rule(
        "password", re.compile(r"(?i)\b(?:set-)?cookie[\"'`]*\s{0,4}:\s{0,4}(?P<secret>(?!\[redacted-)[^\r\n\"'`]{6,})")
    ),
    Rule(
        "password",
        re.compile(
            rf"(?i)(?<![A-Za-z])(?:{NAMES})\b[\"'\\`]*\s{{0,4}}(?:=>|:=|=|:|\bis\b)\s{{0,4}}"
            r"(?P<quote>\\{0,3}[\"'`])(?P<secret>(?!\[redacted-)[^\r\n\"'\\`]{6,200})(?P=quote)"
        ),
    ),
    Rule(
        "password",
        re.compile(
            rf"(?i)(?<![A-Za-z])(?:{NAMES})\b[\"'\\`]*\s{{0,4}}(?:=>|:=|=|:|\bis\b)\s{{0,4}}[\"'\\`]*"
            r"(?P<secret>(?!\[redacted-|bearer\b|basic\b)[^\s\"'\\`,;<>]{6,})"
        ),
    ),
    Rule("email", re.compile(r"(?<![\w.+-])[\w.!#$%&*+/=?^{|}~-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}")),
    Rule("iban", re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b"), mod_97),
    Rule("card", re.compile(r"(?<![\w.])[3-6](?:[ -]?\d){12,18}(?![\w])"), luhn),
    Rule("phone", re.compile(r"(?<![\w+])\+[1-9](?:[ ().-]{0,2}\d){7,14}(?!\w)")),
    Rule("ip", re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)"), of_somebody),
    Rule("ip", re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f]*:)[0-9A-Fa-f:]{3,39}(?:%\w+)?(?![\w:])"), of_somebody),
)
