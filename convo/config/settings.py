"""What all layers came to.

Whoever uses a setting reads a typed field; whoever shows settings goes through `listed`, where the
same values stand with their keys and origins.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from convo.config.model_lists import ModelLists
from convo.config.origin import BUILT_IN, Key, Origin, Setting
from convo.config.places import Places
from convo.config.prices import Price, Room
from convo.config.providers import Provider
from convo.config.rates import ServeLimits
from convo.config.storage import Storage
from convo.config.trust import ProjectNotice

ALONE = "local"
"""The tenant where there are no keys: whoever uses this machine."""


class Serve(NamedTuple):
    """The address, the keys and the limits of `convo serve`.

    port:              0 for any free one
    keys_file:         absolute; None: loopback only, and the tenant is "local"
    seal_key_env:      the variable whose value seals compaction items
    max_body_bytes:    of one request
    max_header_bytes:  of all headers of one request
    max_depth:         objects and arrays inside one another in a body
    max_items:         items in one request
    max_requests:      requests that are carried out at once
    read_s:            seconds that a request has to arrive, its head and its body each
    write_s:           seconds for which a client may take nothing of its answer
    keepalive_s:       seconds of quiet after which a stream says that it is still there
    grace_s:           seconds that running turns have when the server is told to end
    reasoning_events:  whose names the events of reasoning have: "openai" or "specification"
    limits:            requests at once and a minute
    """

    host: str
    port: int
    keys_file: Path | None
    seal_key_env: str
    max_body_bytes: int = 32 * 1024 * 1024
    max_header_bytes: int = 64 * 1024
    max_depth: int = 100
    max_items: int = 10_000
    max_requests: int = 1_000
    read_s: float = 30.0
    write_s: float = 60.0
    keepalive_s: float = 15.0
    grace_s: float = 30.0
    reasoning_events: str = "openai"
    limits: ServeLimits = ServeLimits()


class Limits(NamedTuple):
    """How much of a server's answer is read. The defaults leave room for an answer that takes hours.

    answer_bytes:   of one streamed answer as it arrives, comments and keep-alives included
    answer_events:  of one streamed answer
    answer_s:       seconds of one streamed answer, from the request to its end
    idle_s:         seconds without an event that adds to the answer; comments and keep-alives are none. A model may
                    reason for an hour in silence, so the default is twice that
    event_bytes:    of one event; the last one repeats the whole answer
    output_bytes:   of the items of one answer: text, reasoning, arguments, images in base64
    body_bytes:     of an answer that is not streamed: a stored response, a page of items, a list of models
    """

    answer_bytes: int = 256 * 1024 * 1024
    answer_events: int = 1_000_000
    answer_s: float = 6 * 3600.0
    idle_s: float = 2 * 3600.0
    event_bytes: int = 8 * 1024 * 1024
    output_bytes: int = 4 * 1024 * 1024
    body_bytes: int = 32 * 1024 * 1024


DEFAULT_LIMITS = Limits()

COMPACT_AT = 0.8
"""Four fifths of a window: there is room left for a long answer."""


EDITING = "emacs"
ANSWERS = "markdown"


class Settings(NamedTuple):
    """Everything that can be set.

    model:      as it was written: provider/model, an alias or a bare name; `choose` reads it
    providers:  by name, the known ones among them
    aliases:    what each bare name stands for
    tenant:     whose state the commands see and make; `convo serve` goes by its keys instead
    prices:     by "provider/model", where somebody gave one
    listed:     every value with its origin, in order of their keys
    compact_at: the part of its model's window that a chat's history may take before it is compacted; more than
                1: tokens; 0: never
    redact:     regular expressions of what `--redact` takes out besides what it knows
    windows:    how much a model has room for, by "provider/model", where somebody said so
    editing:    the keys of the prompt: "emacs" or "vi"; "plain" draws nothing, for who listens to a screen
    configured:   the providers that have a key, or take none
    model_lists:  the model lists that providers gave, as `convo.config.model_lists` keeps them
    answers:    how they stand in a terminal: "markdown", laid out, or "plain", as the model wrote them
    limits:     how much of a server's answer is read
    notice:     the part of the project's file that is ignored; None where all of it is used
    """

    model: str
    providers: Mapping[str, Provider]
    aliases: Mapping[str, str]
    storage: Storage
    tenant: str
    serve: Serve
    prices: Mapping[str, Price]
    places: Places
    listed: tuple[Setting, ...]
    compact_at: float = COMPACT_AT
    redact: tuple[str, ...] = ()
    windows: Mapping[str, Room] = MappingProxyType({})
    editing: str = EDITING
    answers: str = ANSWERS
    configured: frozenset[str] = frozenset()
    model_lists: ModelLists = MappingProxyType({})
    limits: Limits = DEFAULT_LIMITS
    notice: ProjectNotice | None = None

    def origin(self, *key: str) -> Origin:
        """Where the value at `key` came from, as in origin("providers", "openai", "base_url")."""
        return next((setting.origin for setting in self.listed if setting.key == key), BUILT_IN)


def defaults(providers: Mapping[str, Mapping[str, str]]) -> dict[Key, object]:
    """What holds where no layer says anything."""
    serve = Serve("127.0.0.1", 8788, None, "CONVO_SEAL_KEY")
    rates, limits = serve.limits, DEFAULT_LIMITS
    found: dict[Key, object] = {
        ("tenant",): ALONE,
        ("compact_at",): COMPACT_AT,
        ("editing",): EDITING,
        ("answers",): ANSWERS,
        ("serve", "host"): serve.host,
        ("serve", "port"): serve.port,
        ("serve", "seal_key_env"): serve.seal_key_env,
        ("serve", "max_body_bytes"): serve.max_body_bytes,
        ("serve", "max_header_bytes"): serve.max_header_bytes,
        ("serve", "max_depth"): serve.max_depth,
        ("serve", "max_items"): serve.max_items,
        ("serve", "max_requests"): serve.max_requests,
        ("serve", "read_s"): serve.read_s,
        ("serve", "write_s"): serve.write_s,
        ("serve", "keepalive_s"): serve.keepalive_s,
        ("serve", "grace_s"): serve.grace_s,
        ("serve", "reasoning_events"): serve.reasoning_events,
        ("serve", "limits", "concurrent"): rates.concurrent,
        ("serve", "limits", "per_minute"): rates.per_minute,
        ("serve", "limits", "process_per_minute"): rates.process_per_minute,
        ("limits", "answer_bytes"): limits.answer_bytes,
        ("limits", "answer_events"): limits.answer_events,
        ("limits", "answer_s"): limits.answer_s,
        ("limits", "idle_s"): limits.idle_s,
        ("limits", "event_bytes"): limits.event_bytes,
        ("limits", "output_bytes"): limits.output_bytes,
        ("limits", "body_bytes"): limits.body_bytes,
    }
    return found | {
        ("providers", name, field): value for name, fields in providers.items() for field, value in fields.items()
    }
