"""The class tree in the docstring of `convo.errors`, and the messages that contain values."""

import re

import pytest

import convo.errors
from convo.errors import (
    AmbiguousHandle,
    Busy,
    ConvoError,
    DamagedRow,
    EndpointFault,
    IllegalTransition,
    InvalidRunState,
    ItemDeleted,
    LimitReached,
    NotFound,
    RunFailed,
    StoreTooNew,
    TryLater,
    UnknownSchema,
    Unrepairable,
    Unsupported,
    WindowExceeded,
)


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    drawn: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (convo.errors.__doc__ or "").splitlines():
        found = re.match(r"    ([ │├└─]*)(\w+)(?:  |$)", line)
        if found and isinstance(getattr(convo.errors, found[2], None), type):
            above = [(depth, name) for depth, name in above if depth < found.start(2)]
            drawn[found[2]] = above[-1][1] if above else "Exception"
            above.append((found.start(2), found[2]))

    classes = [kind for kind in vars(convo.errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert drawn == {kind.__name__: kind.__bases__[0].__name__ for kind in classes}


LABELS = ("1.0", "1.9")
UNSUPPORTED = "which this version of convo does not support"
UPGRADE = "upgrade convo-state if a newer release wrote it"

MESSAGES: dict[str, tuple[ConvoError, str, str]] = {
    "ambiguous": (
        AmbiguousHandle("resp_", [("resp_1", "hello"), ("resp_2", "")]),
        "'resp_' is ambiguous; it matches\n  resp_1  hello\n  resp_2",
        "add more characters",
    ),
    "not found": (NotFound("session", "x" * 300), f"no session '{'x' * 300}'", "convo sessions"),
    "not found, long": (NotFound("run", "x" * 301, hint="look"), f"no run '{'x' * 64}…'", "look"),
    "run state": (
        InvalidRunState("$.a", "must be a string").in_file("run.json"),
        "run.json: $.a must be a string",
        "use the original file; this one may have been edited or truncated",
    ),
    "newer schema": (
        UnknownSchema("$.v", "'1.10'", LABELS),
        f"$.v is '1.10', {UNSUPPORTED}; supported: 1.0, 1.9",
        UPGRADE,
    ),
    "newest schema": (
        UnknownSchema("$.v", "'99999.0'", LABELS),
        f"$.v is '99999.0', {UNSUPPORTED}; supported: 1.0, 1.9",
        UPGRADE,
    ),
    "unwritten schema": (
        UnknownSchema("$.v", "'1.5'", LABELS),
        f"$.v is '1.5', {UNSUPPORTED}, because no release of openai-agents wrote it; supported: 1.0, 1.9",
        "write the state again with a release of openai-agents",
    ),
    "no schema": (
        UnknownSchema("$.v", "'100000.0'", LABELS),
        f"$.v is '100000.0', {UNSUPPORTED}; supported: 1.0, 1.9",
        "use the original file; this one may have been edited or truncated",
    ),
    "busy": (
        Busy("chat", "process 7 on desk"),
        "'chat' is open in another process (process 7 on desk)",
        "close it in that process, or wait until that process ends",
    ),
    "deleted": (
        ItemDeleted("0123456789abcdef"),
        "the item at 0123456789ab was deleted, so the complete history cannot be sent",
        "continue from an earlier response, or from a conversation without this item",
    ),
    "transition": (
        IllegalTransition("paused", "ModelResponded"),
        "a run that is paused does not accept ModelResponded",
        "reload the run: it has advanced or ended",
    ),
    "transition with a reason": (
        IllegalTransition("paused", "ModelResponded", "no call is open"),
        "a run that is paused does not accept ModelResponded: no call is open",
        "reload the run: it has advanced or ended",
    ),
    "unrepairable": (
        Unrepairable([("code-1", "one"), ("code-2", "two")]),
        "the history cannot be repaired by removing or completing items\n  code-1: one\n  code-2: two",
        "run convo lint --explain CODE for each code",
    ),
    "a damaged row": (
        DamagedRow("session", "tea", "its record is missing"),
        "the stored session 'tea' is damaged: its record is missing",
        "convo store check lists the damaged rows; convo store recover NEW.db copies all others into a new file",
    ),
    "a damaged row with a long key": (
        DamagedRow("session", "x" * 301, "its record is missing"),
        f"the stored session '{'x' * 64}…' is damaged: its record is missing",
        "convo store check lists the damaged rows; convo store recover NEW.db copies all others into a new file",
    ),
    "too new": (
        StoreTooNew("convo.db", 9, 4),
        "convo.db has schema 9; this version of convo supports schemas up to 4",
        "upgrade convo-state, or set CONVO_HOME to another folder",
    ),
    "limit of size": (
        LimitReached("event_bytes", 8_388_608),
        "the response exceeded limits.event_bytes = 8388608",
        "raise it: convo config set limits.event_bytes VALUE",
    ),
    "limit of time": (
        LimitReached("idle_s", 7200.0),
        "the response exceeded limits.idle_s = 7200",
        "raise it: convo config set limits.idle_s VALUE",
    ),
    "unsupported": (
        Unsupported("a/b", "images", hint="leave them out"),
        "a/b does not support images",
        "leave them out",
    ),
    "window": (
        WindowExceeded("a/b", 128_001, 128_000),
        "a/b accepts 128,000 input tokens; this request has 128,001",
        "shorten the message, compact the conversation, or choose a model with a larger context window",
    ),
}


@pytest.mark.parametrize(("error", "message", "hint"), MESSAGES.values(), ids=MESSAGES)
def test_an_error_names_the_values_and_the_next_step(error: ConvoError, message: str, hint: str) -> None:
    assert (error.message, str(error), error.hint) == (message, message, hint)


def test_an_error_of_an_endpoint_has_its_own_code_and_status_or_those_of_its_class() -> None:
    own = TryLater("slow down", code="rate_limit", status=429, param="input", retry_after_s=2.0, hint="wait")
    assert (own.code, own.status, own.param, own.retry_after_s, own.hint) == ("rate_limit", 429, "input", 2.0, "wait")
    default = TryLater("slow down")
    assert (default.code, default.status, default.param, default.retry_after_s) == ("try_later", 503, None, None)
    assert default.hint == "wait a moment, then repeat the command"
    assert (EndpointFault("no").status, EndpointFault("no").hint) == (502, "")


def test_an_error_keeps_the_values_that_a_program_asks_for() -> None:
    limit = LimitReached("answer_s", 5.0)
    assert (limit.limit, limit.maximum, limit.is_time_limit) == ("limits.answer_s", 5.0, True)
    assert not LimitReached("answer_bytes", 5).is_time_limit
    unsupported = Unsupported("a/b", "images", param="input")
    assert (unsupported.model, unsupported.feature, unsupported.param) == ("a/b", "images", "input")
    window = WindowExceeded("a/b", 3, 2)
    assert (window.model, window.needed_tokens, window.limit_tokens, window.param) == ("a/b", 3, 2, "input")
    assert NotFound("run", "x" * 301).handle == "x" * 301
    error = RunFailed("no output", code="max_turns")
    assert (error.code, RunFailed("no output", code="x", hint="retry").hint) == ("max_turns", "retry")


FIELDS: dict[str, tuple[str, int, int, str]] = {
    "ConvoError": ("failed", 1, 500, ""),
    "InvalidUsage": ("usage", 2, 400, "convo --help"),
    "WrongOwner": ("wrong_owner", 2, 400, "convo inspect HANDLE shows its owner"),
    "AmbiguousHandle": ("ambiguous_handle", 2, 400, "add more characters"),
    "InvalidSettings": ("bad_settings", 2, 400, "correct the value where it is set"),
    "UnknownModel": ("model_not_found", 2, 400, "use provider/model; convo models --ask lists the available models"),
    "NotFound": ("not_found", 5, 404, "convo sessions"),
    "InputFault": ("invalid_input", 2, 400, "check the file, or choose another one"),
    "Unreadable": ("unreadable", 2, 400, "check the file, or choose another one"),
    "NotCanonical": ("not_canonical", 2, 400, "check the file, or choose another one"),
    "InvalidRunState": ("bad_state", 2, 400, "use the original file; this one may have been edited or truncated"),
    "UnknownSchema": ("unknown_schema", 2, 400, "use the original file; this one may have been edited or truncated"),
    "JavaScriptRunState": (
        "javascript_state",
        2,
        400,
        "convo resume STATE.json --decide-only -o decided.json, and finish it with @openai/agents in JavaScript",
    ),
    "StateFault": ("state_fault", 1, 400, "convo inspect HANDLE shows its state"),
    "PrefixChanged": (
        "prefix_changed",
        1,
        400,
        "do not change the prefix, or leave out --strict-prefix or the setting strict_prefix",
    ),
    "Conflict": ("conflict", 1, 400, "reload the conversation, then retry"),
    "Busy": ("busy", 1, 400, "close it in that process, or wait until that process ends"),
    "ItemDeleted": (
        "item_deleted",
        1,
        400,
        "continue from an earlier response, or from a conversation without this item",
    ),
    "IllegalTransition": ("illegal_move", 1, 400, "reload the run: it has advanced or ended"),
    "Unrepairable": ("unmendable", 1, 400, "run convo lint --explain CODE for each code"),
    "NotSigned": ("not_signed", 1, 400, "ask the sender for the original signed file"),
    "StoreFault": ("store_fault", 1, 503, "check the folder of the store; CONVO_HOME sets it"),
    "StoreUnavailable": ("store_unavailable", 1, 503, "check the folder of the store; CONVO_HOME sets it"),
    "StoreReadOnly": ("store_read_only", 1, 503, "make its folder writable, or set CONVO_HOME to a writable folder"),
    "StoreFull": ("store_full", 1, 503, "free some space, then retry; confirmed items are kept"),
    "StoreTooNew": ("store_too_new", 1, 503, "upgrade convo-state, or set CONVO_HOME to another folder"),
    "DamagedRow": (
        "store_damaged",
        1,
        500,
        "convo store check lists the damaged rows; convo store recover NEW.db copies all others into a new file",
    ),
    "EndpointFault": ("endpoint_fault", 1, 502, ""),
    "RequestRefused": ("invalid_request_error", 1, 400, "correct the request, then repeat the command"),
    "AlreadyDecided": ("approval_decided", 1, 409, "convo approvals log shows the decisions"),
    "KeyRefused": (
        "invalid_api_key",
        1,
        401,
        "set the key in the variable that convo models lists, or choose another model with -m",
    ),
    "TryLater": ("try_later", 1, 503, "wait a moment, then repeat the command"),
    "Unreachable": ("unreachable", 1, 502, "check the network and the base URL; -m local needs neither"),
    "StreamBroken": ("stream_broken", 1, 502, "repeat the command"),
    "StreamCut": ("stream_broken", 1, 502, "repeat the command"),
    "LimitReached": ("limit_reached", 1, 502, "raise the limit with convo config set"),
    "StateIgnored": ("state_ignored", 1, 502, "this endpoint stores no state: use --session or --replay"),
    "ModelFault": ("model_fault", 1, 400, "choose another model with -m"),
    "ModelMissing": ("model_missing", 1, 400, "choose another model with -m"),
    "Unsupported": ("unsupported", 1, 400, "choose another model with -m"),
    "UnsupportedParameter": ("unsupported_parameter", 1, 400, "choose another model with -m"),
    "UnsupportedValue": ("unsupported_value", 1, 400, "choose another model with -m"),
    "WindowExceeded": (
        "context_length_exceeded",
        1,
        400,
        "shorten the message, compact the conversation, or choose a model with a larger context window",
    ),
    "RunFailed": ("failed", 1, 500, "the conversation is kept; send another message, or change the agents"),
    "Interrupted": ("interrupted", 130, 499, ""),
}
"""The code, exit code, HTTP status and hint of each class, which programs and users rely on."""


def test_each_class_has_its_code_exit_code_status_and_hint() -> None:
    classes = [kind for kind in vars(convo.errors).values() if isinstance(kind, type) and issubclass(kind, ConvoError)]
    assert {kind.__name__: (kind.code, kind.exit, kind.status, kind.hint) for kind in classes} == FIELDS


def test_the_tree_names_the_exit_codes_and_statuses_of_its_classes() -> None:
    for name, exit_code, status in re.findall(r"(\w+) +exit (\d+)(?:, status (\d+))?", convo.errors.__doc__ or ""):
        kind = getattr(convo.errors, name)
        assert (name, kind.exit) == (name, int(exit_code))
        assert not status or (name, kind.status) == (name, int(status))
