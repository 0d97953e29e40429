"""All errors of convo, as one tree.

    ConvoError                    exit 1, status 500
    ├── InvalidUsage              exit 2, status 400   arguments that do not go together
    │   ├── WrongOwner            a handle, flag or record of another strategy
    │   ├── AmbiguousHandle       a prefix of several handles
    │   └── InvalidSettings       a settings file or variable that cannot be used
    │       └── UnknownModel      a model name without a known provider
    ├── NotFound                  exit 5, status 404   an unknown handle
    ├── InputFault                exit 2, status 400   a file or item that cannot be parsed
    │   ├── Unreadable            a file that is missing, a folder, incomplete or not permitted
    │   ├── NotCanonical          an item without an exact JSON form
    │   └── InvalidRunState       a RunState that cannot be read or makes a forbidden claim
    │       ├── UnknownSchema     a schema version that no release wrote
    │       └── JavaScriptRunState  a RunState of the JavaScript SDK, which is another format
    ├── StateFault                exit 1, status 400   the conversation is not in the expected state
    │   ├── PrefixChanged         strict_prefix refuses a request that loses a part of the prefix
    │   ├── Conflict              the head moved since it was read
    │   │   └── AlreadyDecided    status 409           a pending call that was decided before
    │   ├── Busy                  another process writes this conversation
    │   ├── ItemDeleted           a history needs an item whose body was deleted
    │   ├── IllegalTransition     an event that cannot happen in this phase of a run
    │   ├── Unrepairable          an invalid history that cannot be repaired by leaving items out
    │   └── NotSigned             a RunState without a signature, or signed with another key
    ├── StoreFault                exit 1, status 503   the store fails for now
    │   ├── StoreUnavailable      it cannot be opened or reached
    │   ├── StoreReadOnly         it may not be written
    │   ├── StoreFull             no space left
    │   ├── StoreTooNew           made by a newer version of convo
    │   └── DamagedRow            status 500           one row of it cannot be read
    ├── EndpointFault             exit 1               an error from an endpoint or model
    │   ├── RequestRefused        status as received   a final error object: 400, 404, 422 ...
    │   ├── KeyRefused            status 401           no key, a wrong key, or a key without permission
    │   ├── TryLater              status as received   429, 408, 409, 5xx, conversation_locked
    │   ├── Unreachable           status 502           no connection, or it broke before a response
    │   ├── StreamBroken          status 502           the response began and did not end
    │   │   └── StreamCut                              it ended in the middle, without an error
    │   ├── LimitReached          status 502           the response is longer, or slower, than a setting allows
    │   └── StateIgnored          status 502           the response was made without the history it needs
    ├── ModelFault                exit 1, status 400   a model that does not support the request
    │   ├── ModelMissing          the weights or the engine are not installed
    │   ├── Unsupported           an agent, a tool, ... that a run of convo does not support
    │   │   ├── UnsupportedParameter                   a parameter that this model, or a run, does not have
    │   │   └── UnsupportedValue                       a value of a parameter: images, hosted tools, an effort
    │   └── WindowExceeded        the input is longer than the model's context window
    ├── RunFailed                 exit 1               an agent run ended without an output; `code` gives the reason
    └── Interrupted               exit 130             stopped by the user

A class has a code for programs (`code`), an exit code (`exit`), an HTTP status (`status`) and a next step
(`hint`, and another one for the prompt of a chat). Foreign errors are translated into these
where they enter, with `raise ... from`; cli and server read the fields in one place each. A pause for approval
is an outcome of a run and no error.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias

MAX_SHOWN_HANDLE_CHARS = 300
"""Characters of a handle that a message repeats in full."""

REPEAT_HINT = "repeat the command"


class ConvoError(Exception):
    """An error that convo can explain. The message is one sentence without a final full stop.

    hint:         the next step
    prompt_hint:  the next step at the prompt of a chat, if `hint` is only valid in a shell
    """

    code: str = "failed"
    exit: int = 1
    status: int = 500
    hint: str = ""
    prompt_hint: str = ""

    def __init_subclass__(cls) -> None:
        """Inherit `prompt_hint` only together with `hint`."""
        if "hint" in vars(cls) and "prompt_hint" not in vars(cls):
            cls.prompt_hint = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.replace_hint(hint)

    @property
    def message(self) -> str:
        return str(self.args[0])

    def replace_hint(self, hint: str, prompt_hint: str = "") -> Self:
        """Replace the hints of the class, and return this error."""
        self.hint, self.prompt_hint = hint, prompt_hint
        return self

    def add_hint(self, alternative: str) -> None:
        """Add an alternative to each hint."""
        self.hint = f"{self.hint}, or {alternative}" if self.hint else alternative
        self.prompt_hint = self.prompt_hint and f"{self.prompt_hint}, or {alternative}"


# -- the caller -----------------------------------------------------------------------------------


class InvalidUsage(ConvoError):
    """The arguments of a command, or the fields of a request, do not go together."""

    code, exit, status, hint = "usage", 2, 400, "convo --help"


class WrongOwner(InvalidUsage):
    """A handle, flag or record belongs to another owner than the selected one."""

    code, hint = "wrong_owner", "convo inspect HANDLE shows its owner"
    prompt_hint = "/status shows its owner"


class AmbiguousHandle(InvalidUsage):
    """A prefix matches several handles.

    `candidates` are (handle, description).
    """

    code = "ambiguous_handle"
    hint = "add more characters"

    def __init__(self, prefix: str, candidates: Sequence[tuple[str, str]], *, hint: str | None = None) -> None:
        self.prefix, self.candidates = prefix, tuple(candidates)
        lines = "".join(f"\n  {handle}  {label}".rstrip() for handle, label in self.candidates)
        super().__init__(f"{prefix!r} is ambiguous; it matches{lines}", hint=hint)


class InvalidSettings(InvalidUsage):
    """A settings file or an environment variable is invalid."""

    code, hint = "bad_settings", "correct the value where it is set"


class UnknownModel(InvalidSettings):
    """No known provider has a model of this name."""

    code, hint = "model_not_found", "use provider/model; convo models --ask lists the available models"


class NotFound(ConvoError):
    """The handle is unknown.

    `kind` is the kind of the object as text, `handle` the unknown handle, `note` text that is appended to the message.
    """

    code, exit, status, hint = "not_found", 5, 404, "convo sessions"
    prompt_hint = "/resume lists the recent conversations"

    def __init__(self, kind: str, handle: str, *, note: str = "", hint: str | None = None) -> None:
        self.kind, self.handle = kind, handle
        # A megabyte as a handle was repeated in full.
        shown_handle = handle if len(handle) <= MAX_SHOWN_HANDLE_CHARS else f"{handle[:64]}…"
        super().__init__(f"no {kind} {shown_handle!r}{note}", hint=hint)


class InputFault(ConvoError):
    """A file or an item cannot be parsed."""

    code, exit, status, hint = "invalid_input", 2, 400, "check the file, or choose another one"


class Unreadable(InputFault):
    """A file is missing, a folder, not permitted, incomplete or of another type."""

    code = "unreadable"


class NotCanonical(InputFault):
    """An item has no exact JSON form: a number is NaN or infinite, or a value is not JSON."""

    code = "not_canonical"


class InvalidRunState(InputFault):
    """A RunState cannot be read, or makes a forbidden claim.

    `path` is the JSON path of the error.
    """

    code, hint = "bad_state", "use the original file; this one may have been edited or truncated"

    def __init__(self, path: str, problem: str, *, hint: str | None = None) -> None:
        self.path = path
        super().__init__(f"{path} {problem}", hint=hint)

    def in_file(self, name: str) -> Self:
        """Return the same error with the file name in front."""
        self.args = (f"{name}: {self.message}",)
        return self


class UnknownSchema(InvalidRunState):
    """A RunState has a schema version that no release wrote.

    `known_labels` are the versions that releases wrote.
    """

    code = "unknown_schema"

    def __init__(self, path: str, label: str, known_labels: Sequence[str]) -> None:
        self.label, self.known_labels = label, tuple(known_labels)
        reason, hint = "which this version of convo does not support", None
        if _is_newer_label(label, self.known_labels):
            hint = "upgrade convo-state if a newer release wrote it"
        elif _parse_label(label):
            reason += ", because no release of openai-agents wrote it"
            hint = "write the state again with a release of openai-agents"
        super().__init__(path, f"is {label}, {reason}; supported: {', '.join(known_labels)}", hint=hint)


class JavaScriptRunState(InvalidRunState):
    """A RunState is one of the JavaScript SDK: its schema versions look like Python's but have another meaning."""

    code = "javascript_state"
    hint = "convo resume STATE.json --decide-only -o decided.json, and finish it with @openai/agents in JavaScript"


def _is_newer_label(label: str, known_labels: Sequence[str]) -> bool:
    return _parse_label(label) > _parse_label(known_labels[-1])


def _parse_label(label: str) -> list[int]:
    """Parse "1.20" as [1, 20]; empty for any other text."""
    parts = label.strip("'").split(".")
    return [int(part) for part in parts] if all(part.isdecimal() and len(part) < 6 for part in parts) else []


# -- the state ------------------------------------------------------------------------------------


class StateFault(ConvoError):
    """The conversation is not in the expected state."""

    code, exit, status, hint = "state_fault", 1, 400, "convo inspect HANDLE shows its state"
    prompt_hint = "/inspect shows its state"


class PrefixChanged(StateFault):
    """The request would change the prefix of the one before, and strict_prefix refuses that; nothing was sent."""

    code, hint = "prefix_changed", "do not change the prefix, or leave out --strict-prefix or the setting strict_prefix"


class Conflict(StateFault):
    """The head moved since it was read, by another writer; nothing was changed."""

    code, hint = "conflict", "reload the conversation, then retry"


class Busy(StateFault):
    """Another process has this conversation open.

    `process` describes it as text.
    """

    code, hint = "busy", "close it in that process, or wait until that process ends"

    def __init__(self, name: str, process: str, *, hint: str | None = None) -> None:
        self.name, self.process = name, process
        super().__init__(f"{name!r} is open in another process ({process})", hint=hint)


class ItemDeleted(StateFault):
    """A history needs an item whose body was deleted.

    `key` is the key of its node.
    """

    code, hint = "item_deleted", "continue from an earlier response, or from a conversation without this item"

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the item at {key[:12]} was deleted, so the complete history cannot be sent")


class IllegalTransition(StateFault):
    """An event cannot happen in this phase of a run.

    `phase` and `event` are their names.
    """

    code, hint = "illegal_move", "reload the run: it has advanced or ended"

    def __init__(self, phase: str, event: str, reason: str = "") -> None:
        self.phase, self.event = phase, event
        super().__init__(f"a run that is {phase} does not accept {event}{reason and f': {reason}'}")


class AlreadyDecided(Conflict):
    """A pending call was decided before, by another person or process; nothing was changed.

    `decision` is the logged decision as JSON.
    """

    code, status, hint = "approval_decided", 409, "convo approvals log shows the decisions"

    def __init__(self, message: str, decision: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.decision = decision


class Unrepairable(StateFault):
    """A history is invalid, and no fix applies.

    `findings` are (code, message).
    """

    code, hint = "unmendable", "run convo lint --explain CODE for each code"

    def __init__(self, findings: Sequence[tuple[str, str]]) -> None:
        self.findings = tuple(findings)
        lines = "".join(f"\n  {code}: {message}" for code, message in self.findings)
        super().__init__(f"the history cannot be repaired by removing or completing items{lines}")


class NotSigned(StateFault):
    """A RunState has no signature, or one of another content or key."""

    code, hint = "not_signed", "ask the sender for the original signed file"


class StoreFault(ConvoError):
    """The store fails for now; nothing was changed."""

    code, exit, status, hint = "store_fault", 1, 503, "check the folder of the store; CONVO_HOME sets it"


class StoreUnavailable(StoreFault):
    """The store cannot be opened, or is not a store of convo."""

    code = "store_unavailable"


class StoreReadOnly(StoreFault):
    """The store can be read but not written."""

    code, hint = "store_read_only", "make its folder writable, or set CONVO_HOME to a writable folder"


class StoreFull(StoreFault):
    """The disk, or a quota on it, is full."""

    code, hint = "store_full", "free some space, then retry; confirmed items are kept"


class StoreTooNew(StoreFault):
    """The store was made by a newer convo.

    `found_schema` and `known_schema` are schema numbers.
    """

    code, hint = "store_too_new", "upgrade convo-state, or set CONVO_HOME to another folder"

    def __init__(self, location: str, found_schema: int, known_schema: int) -> None:
        self.location, self.found_schema, self.known_schema = location, found_schema, known_schema
        super().__init__(
            f"{location} has schema {found_schema}; this version of convo supports schemas up to {known_schema}"
        )


RowKind: TypeAlias = Literal[
    "session", "response", "conversation", "run", "tool call", "event", "decision", "item", "history"
]


class DamagedRow(StoreFault):
    """A row of the store cannot be read: its JSON or its columns are invalid.

    `key` is its name or id, `problem` the reason.
    """

    code, status = "store_damaged", 500
    hint = "convo store check lists the damaged rows; convo store recover NEW.db copies all others into a new file"

    def __init__(self, table: RowKind, key: str, problem: str) -> None:
        self.table, self.key, self.problem = table, key, problem
        shown_key = key if len(key) <= MAX_SHOWN_HANDLE_CHARS else f"{key[:64]}…"
        super().__init__(f"the stored {table} {shown_key!r} is damaged: {problem}")


# -- endpoints and models -------------------------------------------------------------------------


class EndpointFault(ConvoError):
    """An endpoint returned an error object, or no response.

    `code`, `param` and `status` are the endpoint's own where it sent them; `retry_after_s` is
    its Retry-After in seconds.
    """

    code, exit, status = "endpoint_fault", 1, 502
    param: str | None = None
    retry_after_s: float | None = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code or type(self).code
        self.status = status or type(self).status
        self.param, self.retry_after_s = param, retry_after_s


class RequestRefused(EndpointFault):
    """A final refusal: the endpoint would refuse the same request again."""

    code, status, hint = "invalid_request_error", 400, "correct the request, then repeat the command"
    prompt_hint = "/next shows the next request"


class KeyRefused(EndpointFault):
    """No key, a wrong key, or a key without the permission."""

    code, status, hint = (
        "invalid_api_key",
        401,
        "set the key in the variable that convo models lists, or choose another model with -m",
    )


class TryLater(EndpointFault):
    """The endpoint cannot respond now: 408, 409, 429, 5xx or conversation_locked."""

    code, status, hint = "try_later", 503, "wait a moment, then repeat the command"
    prompt_hint = "wait a moment, then /retry"


NO_CONNECTION = "no_connection"
"""The code of an `Unreachable` before anything was sent."""


class Unreachable(EndpointFault):
    """No connection, or it broke before the response started."""

    code, status, hint = "unreachable", 502, "check the network and the base URL; -m local needs neither"


class StreamBroken(EndpointFault):
    """The response started and did not end."""

    code, status, hint = "stream_broken", 502, REPEAT_HINT
    prompt_hint = "try again with /retry"


class StreamCut(StreamBroken):
    """The response ended in the middle, without an error of the server: what arrived is an incomplete response."""


class LimitReached(EndpointFault):
    """The response of a server reached a limit of the settings and was not read further.

    `limit` is the setting's name below `limits`, `maximum` its value: bytes, events or seconds.
    """

    code, status = "limit_reached", 502
    hint = "raise the limit with convo config set"

    def __init__(self, limit: str, maximum: float) -> None:
        self.limit, self.maximum = f"limits.{limit}", maximum
        super().__init__(
            f"the response exceeded {self.limit} = {maximum:g}"
            if limit.endswith("_s")
            else f"the response exceeded {self.limit} = {maximum}",
            hint=f"raise it: convo config set {self.limit} VALUE",
        )

    @property
    def is_time_limit(self) -> bool:
        """Whether it is a limit of time."""
        return self.limit.endswith("_s")


class StateIgnored(EndpointFault):
    """The endpoint responded without the history that the request continues."""

    code, status = "state_ignored", 502
    hint = "this endpoint stores no state: use --session or --replay"


class ModelFault(ConvoError):
    """A model does not support the request; nothing was sent."""

    code, exit, status, hint = "model_fault", 1, 400, "choose another model with -m"
    prompt_hint = "choose another model with /model"


class ModelMissing(ModelFault):
    """The weights or the engine of a local model are not installed."""

    code = "model_missing"


class Unsupported(ModelFault):
    """The model, or a run of agents, does not support a feature; one of a request has one of the two codes of OpenAI.

    `feature` names it as text; `param` is the field of the request, if any.
    """

    code = "unsupported"

    def __init__(self, model: str, feature: str, *, param: str | None = None, hint: str | None = None) -> None:
        self.model, self.feature, self.param = model, feature, param
        super().__init__(f"{model} does not support {feature}", hint=hint)


class UnsupportedParameter(Unsupported):
    """The model, or a run of convo, does not accept a parameter."""

    code = "unsupported_parameter"


class UnsupportedValue(Unsupported):
    """The model does not accept a value of a parameter: a tool, an item of the input, an effort."""

    code = "unsupported_value"


class WindowExceeded(ModelFault):
    """The input does not fit the model's context window.

    `needed_tokens` and `limit_tokens` are the size of the input and the limit.
    """

    code, param = "context_length_exceeded", "input"
    hint = "shorten the message, compact the conversation, or choose a model with a larger context window"
    prompt_hint = "/compact, shorten the message, or choose a model with a larger context window with /model"

    def __init__(self, model: str, needed_tokens: int, limit_tokens: int) -> None:
        self.model, self.needed_tokens, self.limit_tokens = model, needed_tokens, limit_tokens
        super().__init__(f"{model} accepts {limit_tokens:,} input tokens; this request has {needed_tokens:,}")


class RunFailed(ConvoError):
    """An agent run ended without a final output: a guardrail, too many turns, or user code that raised."""

    hint = "the conversation is kept; send another message, or change the agents"

    def __init__(self, message: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class Interrupted(ConvoError):
    """The user stopped the command; the partial output is kept."""

    code, exit, status, hint = "interrupted", 130, 499, ""
