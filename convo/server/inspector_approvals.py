"""Decisions on the pending calls of paused agent runs, made on the inspector page, and their log.

The server stores a decision and runs no tool: `convo resume` continues the run with it, or the chat that waits for it.
A decision needs an API key, also on loopback, and is logged under the name of the key. The calls are in the OpenAPI
document.

`GET /inspect/api/approvals?run=run_...&call=call_...` returns one pending call for the confirmation of a decision:

    {"run_id": "run_...", "session": "refunds", "call_id": "call_1", "agent": "desk", "tool_name": "refund",
     "arguments": "{}",             exactly as they will be passed to the tool
     "arguments_digest": "sha256:...",
     "call_digest": "sha256:...",   of the agent, the tool, the arguments and the turn
     "outcome_unknown": false,      the call was started, and its outcome is unknown
     "is_hosted": false,            the provider runs the tool
     "can_decide": true,            false without API keys; `hint` says how to set them up
     "hint": null,
     "csrf_token": "..."}           null without API keys

`POST /inspect/api/approvals` decides it. The token belongs to the key and is valid for an hour:

    {"run_id": "run_...", "call_id": "call_1", "decision": "approve" or "reject", "arguments_digest": "sha256:...",
     "csrf_token": "...", "call_digest": "sha256:...", "always": false, "reason": "not on a Friday"}

A reason is only allowed with "reject". With `call_digest`, which the page sends, only the call that was shown is
decided, also if a later turn of the run uses its id again.

It returns {"decisions": [...], "pending": 0, "resume": "convo resume refunds", "open_in": null}: the logged decisions
(several if `always` also decides other calls of the tool), the number of calls that are still pending, the command that
continues the run, and the process that has the session open: a chat that waits for the decision continues the run
itself. It refuses with

    401 invalid_api_key      the code is null without a key
    403 api_key_required     the server has no keys
        origin_not_allowed   the page of another site sent the request
        invalid_csrf_token   the token is of another key, or expired
    404 not_found            no such run of this key, or no such pending call
    409 approval_decided     decided before; `error.decision` is the logged decision
        arguments_changed    the arguments are not those that were shown
        ambiguous_call       several pending calls have this id
        session_open         the process that has the session open has continued or ended the run without a decision
        run_changed          the run changed meanwhile, or the call is not the one with `call_digest`

`GET /inspect/api/decisions?run=run_...&limit=100` returns the log, newest first:

    {"decisions": [{"run", "call_id", "agent", "tool_name", "arguments", "arguments_truncated", "arguments_digest",
                    "decision", "always", "reason", "decided_at", "decided_by", "source"}]}

Of long arguments only the start is returned, and `arguments_truncated` is true; the digest is that of the whole text.
"""

import hmac
from hashlib import sha256
from secrets import token_bytes
from shlex import quote

from convo.chat.run_decisions import build_decision_report, hash_arguments, hash_pending_call, save_decisions
from convo.chat.session_record import describe_session_writer
from convo.chat.view_loader import get_agents_option
from convo.errors import AlreadyDecided, Conflict, IllegalTransition, NotFound
from convo.history.items import Json
from convo.history.records import AgentRun, ApprovalDecision
from convo.report import to_json
from convo.runs.state import ApprovalDecided
from convo.runs.stored_approvals import PendingApproval, list_decidable_approvals, list_pending_approvals
from convo.server import errors, http
from convo.server.handlers import HandlerContext
from convo.stores.base import Store

MAX_REASON_CHARACTERS = 10_000
MAX_LISTED_ARGUMENT_CHARACTERS = 1000
"""Characters of the arguments of a call in the log."""

DEFAULT_DECISION_LIMIT, MAX_DECISION_LIMIT = 100, 500

CSRF_TOKEN_LIFETIME_S = 3600
CSRF_SECRET_NAME, CSRF_SECRET_BYTES = "inspector csrf", 32
DECISIONS = ("approve", "reject")
BODY_FIELDS = ("run_id", "call_id", "decision", "arguments_digest", "csrf_token", "call_digest", "always", "reason")


async def encode_approval(context: HandlerContext) -> bytes:
    """Serialize one pending call. Raises NotFound, AlreadyDecided and RequestRefused."""
    store = context.inspector.store.for_tenant(context.tenant)
    run = await _load_run(store, context.query["run"])
    call = await _find_pending_call(store, run, context.query["call"])
    session = await store.session(run.session_id)
    return http.serialize_strict_json(
        {
            "run_id": run.id,
            "session": session.name if session else run.session_id,
            "call_id": call.call_id,
            "agent": call.agent,
            "tool_name": call.tool,
            "arguments": call.arguments,
            "arguments_digest": hash_arguments(call.arguments),
            "call_digest": hash_pending_call(call),
            "outcome_unknown": call.outcome_unknown,
            "is_hosted": call.is_hosted,
            "can_decide": context.has_keys,
            "hint": None if context.has_keys else errors.KEYS_HINT,
            "csrf_token": await _make_csrf_token(context) if context.has_keys else None,
        }
    )


async def encode_decisions(context: HandlerContext) -> bytes:
    """Serialize the log of decisions. Raises NotFound for an unknown run."""
    store, run_id = context.inspector.store.for_tenant(context.tenant), context.query.get("run")
    if run_id is not None:
        await _load_run(store, run_id)
    limit = max(1, min(context.query.get("limit", DEFAULT_DECISION_LIMIT), MAX_DECISION_LIMIT))
    decisions = await store.approval_decisions(run_id, limit=limit)
    return http.serialize_strict_json({"decisions": [_summarize_decision(decision) for decision in decisions]})


async def store_decision(context: HandlerContext) -> dict[str, Json]:
    """Store the decision in the body and log it. Raises the errors of the module's docstring."""
    _check_same_origin(context)
    if not context.has_keys:
        raise errors.api_key_required_error()
    body = context.body
    context.check_fields(*BODY_FIELDS)
    for name in ("run_id", "call_id", "decision", "arguments_digest", "csrf_token"):
        if name not in body:
            raise errors.missing_http_parameter_error(name)
        if not isinstance(body[name], str):
            raise errors.http_parameter_type_error(name, "a string")
    call_digest = body.get("call_digest")
    if call_digest is not None and not isinstance(call_digest, str):
        raise errors.http_parameter_type_error("call_digest", "a string")
    if not await _is_csrf_token(context, body["csrf_token"]):
        raise errors.invalid_csrf_token_error()
    if body["decision"] not in DECISIONS:
        raise errors.http_parameter_value_error("decision", body["decision"][:64], DECISIONS)
    approve, is_sticky, reason = body["decision"] == "approve", context.get_boolean("always"), body.get("reason")
    if reason is not None and (not isinstance(reason, str) or len(reason) > MAX_REASON_CHARACTERS):
        raise errors.http_parameter_type_error("reason", f"a string of at most {MAX_REASON_CHARACTERS} characters")
    if reason and approve:
        raise errors.parameter_requires_error("reason", "decision=reject")

    store = context.inspector.store.for_tenant(context.tenant)
    run = await _load_run(store, body["run_id"])
    call = await _require_pending_call(store, run, body["call_id"])
    if not hmac.compare_digest(hash_arguments(call.arguments).encode(), _encode(body["arguments_digest"])):
        raise errors.arguments_changed_error(call.call_id)
    if call_digest is not None and not hmac.compare_digest(hash_pending_call(call).encode(), _encode(call_digest)):
        raise errors.run_changed_error(run.id)
    event = ApprovalDecided(call.call_id, approve, reason or None, is_sticky)
    try:
        decisions = await save_decisions(
            *(store, run, [event]),
            now=context.inspector.clock.now(),
            decided_by=context.tenant,
            source="page",
        )
    except (AlreadyDecided, Conflict, IllegalTransition) as error:
        await _require_pending_call(store, await _load_run(store, run.id), call.call_id)  # raises the decision, if any
        raise errors.run_changed_error(run.id) from error
    stored = await _load_run(store, run.id)
    session = await store.session(run.session_id)
    name = session.name if session else run.id
    return {
        "decisions": [_summarize_decision(decision) for decision in decisions],
        "pending": len(list_pending_approvals(stored.document)),
        "resume": f"convo resume {quote(name)}{get_agents_option(stored.document)}",
        "open_in": (await describe_session_writer(store, session) or None) if session else None,
    }


async def _load_run(store: Store, run_id: str) -> AgentRun:
    run = await store.agent_run(run_id)
    if run is None:
        raise NotFound("run", run_id)
    return run


async def _require_pending_call(store: Store, run: AgentRun, call_id: str) -> PendingApproval:
    """Return a pending call to decide. Raises RequestRefused also for a call that an open chat has performed."""
    try:
        return await _find_pending_call(store, run, call_id)
    except NotFound:
        session = await store.session(run.session_id)
        writer = await describe_session_writer(store, session) if session and run.status != "paused" else ""
        if session and writer:
            raise errors.session_open_error(session.name, writer) from None
        raise


async def _find_pending_call(store: Store, run: AgentRun, call_id: str) -> PendingApproval:
    """Return the pending call with this id. Raises NotFound, AlreadyDecided and RequestRefused."""
    calls = [call for call in list_decidable_approvals(run.document) if call.call_id == call_id]
    pending = [call for call in calls if call.approved is None]
    if len(pending) > 1:
        raise errors.ambiguous_call_error(call_id)
    if pending:
        return pending[0]
    logged = next((one for one in await _list_all_decisions(store, run) if one.call_id == call_id), None)
    if logged:
        raise errors.already_decided_error(_summarize_decision(logged))
    if calls:  # decided by a version of convo without a log, or when the run was resumed
        raise errors.already_decided_error(
            {
                "run": run.id,
                "call_id": call_id,
                "tool_name": calls[0].tool,
                "decision": "approve" if calls[0].approved else "reject",
                "decided_at": None,
                "decided_by": None,
            }
        )
    raise NotFound("pending call", call_id)


async def _list_all_decisions(store: Store, run: AgentRun) -> list[ApprovalDecision]:
    return list(await store.approval_decisions(run.id, limit=MAX_DECISION_LIMIT))


def _summarize_decision(decision: ApprovalDecision) -> dict[str, Json]:
    """Return the JSON object of a decision; of long arguments only the start."""
    is_long = len(decision.arguments) > MAX_LISTED_ARGUMENT_CHARACTERS
    shown = f"{decision.arguments[:MAX_LISTED_ARGUMENT_CHARACTERS]}…" if is_long else decision.arguments
    return {**to_json(build_decision_report(decision)), "arguments": shown, "arguments_truncated": is_long}


# -- cross-site requests ---------------------------------------------------------------------------


def _check_same_origin(context: HandlerContext) -> None:
    """Raise RequestRefused if a browser sent the request for a page of another origin.

    A browser sends `Sec-Fetch-Site` on HTTPS and on loopback, and `Origin` with every POST; other clients send neither.
    A proxy may remove the port from Host, so the port is compared only if the browser did not compare the origins.
    """
    site = context.headers.get(b"sec-fetch-site", b"").decode("latin-1")
    origin = context.headers.get(b"origin", b"").decode("latin-1")
    host = context.headers.get(b"host", b"").decode("latin-1")
    if site not in ("", "same-origin"):
        raise errors.origin_not_allowed_error(origin or f"of another site ({site})")
    if origin:
        scheme, _, origin_host = origin.partition("://")
        is_same = origin_host == host or (site and origin_host.rpartition(":")[0] == host)
        if scheme not in ("http", "https") or not is_same:
            raise errors.origin_not_allowed_error(origin)


async def _make_csrf_token(context: HandlerContext) -> str:
    """Make a token for the key of the request: the time and a MAC over the time and the hash of the key."""
    issued_at = str(int(context.inspector.clock.now()))
    return f"{issued_at}.{await _compute_csrf_mac(context, issued_at)}"


async def _is_csrf_token(context: HandlerContext, token: str) -> bool:
    issued_at, _, mac = token.partition(".")
    if not (issued_at.isascii() and issued_at.isdigit() and len(issued_at) < 19):
        return False
    expected = await _compute_csrf_mac(context, issued_at)
    age_s = context.inspector.clock.now() - int(issued_at)
    return hmac.compare_digest(expected.encode(), _encode(mac)) and age_s <= CSRF_TOKEN_LIFETIME_S


async def _compute_csrf_mac(context: HandlerContext, issued_at: str) -> str:
    """Compute the MAC with a secret of the database, which all replicas share."""
    secret = await context.inspector.store.admin.get_or_create_secret(CSRF_SECRET_NAME, token_bytes(CSRF_SECRET_BYTES))
    key_hash = sha256(context.headers.get(b"authorization", b"")).hexdigest()
    return hmac.new(secret, f"{context.tenant} {key_hash} {issued_at}".encode(), sha256).hexdigest()


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
