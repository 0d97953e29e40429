"""Decisions on the inspector page over HTTP: every refusal, two deciders, and the log."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from convo.chat.run_decisions import hash_arguments, save_decisions
from convo.errors import Conflict
from convo.history.records import AgentRun
from convo.history.tree import root_key
from convo.runs.serialize import run_to_json
from convo.runs.state import ApprovalDecided, Run
from convo.runs.stored_approvals import apply_decisions, list_pending_approvals
from convo.server.auth import KeysFile, create_api_key
from convo.stores.base import Store, Transaction
from tests.clock import FixedClock
from tests.runs.run_steps import call
from tests.runs.test_nested_runs import paused_with_two_clerks
from tests.runs.test_stored_approvals import paused, unknown_outcome
from tests.server.api_keys import bearer
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway
from tests.stores.chat_transactions import NOW, session

RESUME = "convo resume refund_1 --agent FILE.py:NAME"
APPROVALS, DECISIONS = "/inspect/api/approvals", "/inspect/api/decisions"


class Desk:
    """A gateway with the keys of alice and bob, and paused runs of alice."""

    def __init__(self, gateway: RunningGateway, keys: dict[str, str], tenant: str = "alice") -> None:
        self.gateway, self.keys, self.tenant = gateway, keys, tenant
        self.store: Store = gateway.store.for_tenant(tenant)

    def add_run(self, run: Run, run_id: str = "run_1") -> None:
        """Store a paused run in a session with the same number."""
        root = root_key(self.tenant)
        name = run_id.replace("run", "refund")
        record = session(id=run_id.replace("run", "ses"), name=name, head=root, confirmed_head=root)
        row = AgentRun(run_id, record.id, 1, "paused", run_to_json(run), NOW, NOW)
        self.gateway.run(self.store.commit(Transaction(session=record, agent_run=row)))

    def run(self, run_id: str = "run_1") -> AgentRun:
        row = self.gateway.run(self.store.agent_run(run_id))
        assert row
        return row

    def pending(self, run_id: str = "run_1") -> list[str]:
        return [one.call_id for one in list_pending_approvals(self.run(run_id).document)]

    def show(self, call_id: str = "g1", *, key: str = "alice", run_id: str = "run_1") -> Any:
        query = {"run": run_id, "call": call_id}
        return self.gateway.http.get(APPROVALS, params=query, headers=bearer(self.keys[key]))

    def post(self, body: dict[str, Any], *, key: str = "alice", **headers: str) -> Any:
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.gateway.http.post(APPROVALS, json=body, headers={**bearer(self.keys[key]), **more})

    def body(self, decision: str = "approve", call_id: str = "g1", **fields: Any) -> dict[str, Any]:
        shown = self.show(call_id).json()
        names = ("run_id", "call_id", "arguments_digest", "csrf_token")
        return {**{name: shown[name] for name in names}, "decision": decision, **fields}

    def log(self, **query: Any) -> list[dict[str, Any]]:
        got = self.gateway.http.get(DECISIONS, params=query, headers=bearer(self.keys["alice"]))
        entries: list[dict[str, Any]] = got.json()["decisions"]
        return entries


def open_desk(serve: Serve, folder: Path, store_url: str, **more: Any) -> Desk:
    """Start a gateway with keys, and pause a run of alice."""
    file = folder / "keys"
    keys = {name: create_api_key(file, name) for name in ("alice", "bob")}
    desk = Desk(serve(store_url, keys=KeysFile(file), **more), keys)
    desk.add_run(paused())
    return desk


@pytest.fixture
def desk(serve: Serve, tmp_path: Path) -> Desk:
    return open_desk(serve, tmp_path, "memory")


def refusal(got: Any) -> tuple[int, str | None]:
    return got.status_code, got.json()["error"]["code"]


# -- decisions ------------------------------------------------------------------------------------


def test_a_decision_is_saved_in_the_run_and_logged_under_the_name_of_the_key(desk: Desk) -> None:
    expected = apply_decisions(desk.run().document, [ApprovalDecided("g1", approve=False, message="not on a Friday")])
    got = desk.post(desk.body("reject", reason="not on a Friday"))

    assert got.status_code == 200
    assert desk.run() == desk.run()._replace(revision=2, document=expected)
    (entry,) = desk.log()
    assert entry == got.json()["decisions"][0]
    assert got.json() == {"decisions": [entry], "pending": 2, "resume": RESUME, "open_in": None}
    assert entry.pop("decided_at") > NOW
    assert entry == {
        "run": "run_1",
        "call_id": "g1",
        "agent": "shop",
        "tool_name": "guarded",
        "arguments": '{"text": "x"}',
        "arguments_truncated": False,
        "arguments_digest": hash_arguments('{"text": "x"}'),
        "decision": "reject",
        "always": False,
        "reason": "not on a Friday",
        "decided_by": "alice",
        "source": "page",
    }
    text = json.dumps([desk.log(), got.json()])
    assert not any(key in text for key in desk.keys.values())


def test_always_decides_and_logs_every_pending_call_of_the_tool(desk: Desk) -> None:
    assert len(desk.post(desk.body(always=True)).json()["decisions"]) == 2
    assert desk.pending() == ["m1"]
    assert [(one["call_id"], one["decision"], one["always"]) for one in desk.log(run="run_1")] == [
        ("g2", "approve", True),
        ("g1", "approve", True),
    ]
    assert desk.post(desk.body("approve", "m1")).json()["pending"] == 0
    assert [one["call_id"] for one in desk.log(limit=1)] == ["m1"]


def test_a_call_is_shown_with_its_exact_arguments_and_a_long_one_is_short_in_the_log(desk: Desk) -> None:
    arguments = json.dumps({"text": "</script><img src=x>\u202e" + "x" * 1_000_000}, ensure_ascii=False)
    desk.add_run(paused(call("big", "guarded", arguments)), "run_2")
    shown = desk.show("big", run_id="run_2")
    assert shown.json()["arguments"] == arguments
    assert (shown.headers["cache-control"], shown.headers["x-content-type-options"]) == ("no-store", "nosniff")
    digest = shown.json()["arguments_digest"]
    body = {**desk.body(), "run_id": "run_2", "call_id": "big", "arguments_digest": digest}
    assert desk.post(body).status_code == 200
    (entry,) = desk.log(run="run_2")
    assert (entry["arguments"], entry["arguments_truncated"]) == (f"{arguments[:1000]}…", True)
    assert entry["arguments_digest"] == digest
    (logged,) = desk.gateway.run(desk.store.approval_decisions("run_2"))
    assert logged.arguments == arguments


def test_a_call_with_an_unknown_outcome_is_marked_and_can_be_decided(desk: Desk) -> None:
    desk.add_run(unknown_outcome(), "run_2")
    shown = desk.show("u1", run_id="run_2").json()
    assert shown["outcome_unknown"]
    body = {**desk.body(), "run_id": "run_2", "call_id": "u1", "arguments_digest": shown["arguments_digest"]}
    assert desk.post(body).status_code == 200
    assert [one["call_id"] for one in desk.log(run="run_2")] == ["u1"]
    assert refusal(desk.post(body)) == (409, "approval_decided")


# -- refusals -------------------------------------------------------------------------------------


def test_without_a_key_or_with_a_wrong_one_nothing_is_shown_or_decided(desk: Desk) -> None:
    body = desk.body()
    for header, code in (({}, None), (bearer("convo_wrong"), "invalid_api_key")):
        got = desk.gateway.http.post(APPROVALS, json=body, headers=header)
        assert refusal(got) == (401, code)
        for path in (f"{APPROVALS}?run=run_1&call=g1", DECISIONS):
            assert refusal(desk.gateway.http.get(path, headers=header)) == (401, code)
    assert desk.log() == []


def test_a_server_without_keys_shows_calls_and_says_how_to_set_up_a_key(serve: Serve) -> None:
    desk = Desk(serve(), {"alice": "any"}, "local")
    desk.add_run(paused())
    shown = desk.show().json()
    assert (shown["can_decide"], shown["csrf_token"]) == (False, None)
    assert "convo serve --new-key local --keys FILE" in shown["hint"]
    body = {name: shown[name] for name in ("run_id", "call_id", "arguments_digest")}
    got = desk.post({**body, "decision": "approve", "csrf_token": "x"})
    assert refusal(got) == (403, "api_key_required")
    assert "convo serve --new-key local --keys FILE" in got.json()["error"]["message"]
    assert desk.pending() == ["g1", "g2", "m1"]


def test_a_run_of_another_key_is_not_found(desk: Desk) -> None:
    assert refusal(desk.show(key="bob"))[0] == 404
    token = desk.show().json()["csrf_token"]
    got = desk.post(desk.body(), key="bob")
    assert refusal(got) == (403, "invalid_csrf_token")  # the token of alice
    Desk(desk.gateway, desk.keys, "bob").add_run(paused(), "run_b")
    bobs_token = desk.show(key="bob", run_id="run_b").json()["csrf_token"]
    assert bobs_token != token
    assert desk.post({**desk.body(), "csrf_token": bobs_token}, key="bob").status_code == 404
    assert (
        desk.gateway.http.get(DECISIONS, params={"run": "run_1"}, headers=bearer(desk.keys["bob"])).status_code == 404
    )
    assert desk.log() == []


@pytest.mark.parametrize("token", ["", "x", "1.x", "{issued}.", "{issued}.{mac}0", "9{issued}.{mac}", "ä.ä"])
def test_a_decision_needs_the_token_of_its_key(desk: Desk, token: str) -> None:
    body = desk.body()
    issued, _, mac = body["csrf_token"].partition(".")
    got = desk.post({**body, "csrf_token": token.format(issued=issued, mac=mac)})
    assert refusal(got) == (403, "invalid_csrf_token")
    assert desk.pending() == ["g1", "g2", "m1"]


def test_a_token_expires_after_an_hour(serve: Serve, tmp_path: Path) -> None:
    clock = FixedClock(NOW)
    desk = open_desk(serve, tmp_path, "memory", clock=clock)
    body = desk.body()
    clock.advance(3601)
    assert refusal(desk.post(body)) == (403, "invalid_csrf_token")
    assert desk.post({**body, "csrf_token": desk.body()["csrf_token"]}).status_code == 200
    assert desk.log()[0]["decided_at"] == NOW + 3601


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "none"}, 403),
        ({"sec_fetch_site": "same-origin", "origin": "https://evil.example"}, 403),
        ({"sec_fetch_site": "same-origin", "origin": "{root}"}, 200),
        ({"sec_fetch_site": "same-origin", "origin": "https://convo.example:8443", "host": "convo.example"}, 200),
        ({"origin": "{root}"}, 200),
        ({}, 200),
    ],
)
def test_only_the_page_of_the_same_origin_decides(desk: Desk, headers: dict[str, str], status: int) -> None:
    sent = {name: value.format(root=desk.gateway.root) for name, value in headers.items()}
    got = desk.post(desk.body(), **sent)
    assert got.status_code == status
    assert status == 200 or refusal(got) == (403, "origin_not_allowed")
    assert len(desk.log()) == (status == 200)


def test_the_second_of_two_deciders_gets_the_decision_of_the_first(desk: Desk) -> None:
    first, second = desk.body("approve"), desk.body("reject", reason="no")
    assert desk.post(first).status_code == 200
    got = desk.post(second)
    assert refusal(got) == (409, "approval_decided")
    assert got.json()["error"]["decision"] == desk.log()[0]
    assert got.json()["error"]["message"] == "The call g1 is already approved by alice."
    assert refusal(desk.show()) == (409, "approval_decided")
    assert len(desk.log()) == 1


@pytest.mark.parametrize("type_name", ["memory", "sqlite"])
def test_of_many_deciders_at_once_one_wins(serve: Serve, tmp_path: Path, type_name: str) -> None:
    desk = open_desk(serve, tmp_path, {"memory": "memory", "sqlite": f"sqlite:{tmp_path / 'convo.db'}"}[type_name])
    bodies = [desk.body("approve" if number % 2 else "reject") for number in range(8)]

    async def decide_all() -> list[Any]:
        return await asyncio.gather(*(asyncio.to_thread(desk.post, body) for body in bodies))

    answers = asyncio.run(decide_all())
    (won,) = [got for got in answers if got.status_code == 200]
    (entry,) = desk.log()
    assert won.json()["decisions"] == [entry]
    assert {refusal(got) for got in answers if got is not won} == {(409, "approval_decided")}
    assert all(got.json()["error"]["decision"] == entry for got in answers if got is not won)


def test_arguments_that_changed_since_they_were_shown_are_not_approved(desk: Desk) -> None:
    body = desk.body()
    row = desk.run()
    batch = [{**one, "arguments": '{"text": "y"}'} if one["id"] == "g1" else one for one in row.document["batch"]]
    changed = row._replace(revision=2, document={**row.document, "batch": batch})
    desk.gateway.run(desk.store.commit(Transaction(agent_run=changed)))
    assert refusal(desk.post(body)) == (409, "arguments_changed")
    assert desk.pending() == ["g1", "g2", "m1"]
    assert desk.log() == []


@pytest.mark.parametrize("change", ["turn", "tool", "agent"])
def test_another_call_with_the_same_id_and_arguments_is_not_approved(desk: Desk, change: str) -> None:
    body, row = desk.body(call_digest=desk.show().json()["call_digest"]), desk.run()
    document = dict(row.document)
    if change == "tool":
        document["batch"] = [
            {**one, "lookup": ["tool", "free"]} if one["id"] == "g1" else one for one in document["batch"]
        ]
    else:
        document |= {"turn": document["turn"] + 1} if change == "turn" else {"agent": "other"}
    desk.gateway.run(desk.store.commit(Transaction(agent_run=row._replace(revision=2, document=document))))
    assert refusal(desk.post(body)) == (409, "run_changed")
    assert (desk.pending(), desk.log()) == (["g1", "g2", "m1"], [])
    again = desk.body(call_digest=desk.show().json()["call_digest"])
    assert desk.post(again).status_code == 200


def test_a_decision_is_not_saved_in_a_later_pause_at_a_call_with_the_same_id(desk: Desk) -> None:
    row = desk.run()
    later = row._replace(revision=2, document={**row.document, "turn": row.document["turn"] + 1})
    desk.gateway.run(desk.store.commit(Transaction(agent_run=later)))
    with pytest.raises(Conflict):
        desk.gateway.run(save_decisions(desk.store, row, [ApprovalDecided("g1", approve=True)], now=NOW))
    assert (desk.pending(), desk.log()) == (["g1", "g2", "m1"], [])


def test_a_call_of_a_session_that_is_open_in_a_chat_is_decided_and_the_answer_names_the_chat(desk: Desk) -> None:
    async def open_elsewhere() -> None:
        await desk.store.acquire_lease("session ses_1", "other@elsewhere:1:0", 60)

    assert desk.post(desk.body()).json()["open_in"] is None
    desk.gateway.run(open_elsewhere())
    got = desk.post(desk.body("reject", "m1"))
    assert (got.status_code, got.json()["open_in"]) == (200, "process 1 on other")
    assert desk.pending() == ["g2"]
    assert [one["call_id"] for one in desk.log()] == ["m1", "g1"]


def test_a_decision_on_a_run_that_an_open_chat_continued_names_the_chat(desk: Desk) -> None:
    async def continue_elsewhere() -> None:
        await desk.store.acquire_lease("session ses_1", "other@elsewhere:1:0", 60)
        row = desk_run._replace(revision=2, status="running", document={**desk_run.document, "phase": "WORKING"})
        await desk.store.commit(Transaction(agent_run=row))

    body, desk_run = desk.body(), desk.run()
    desk.gateway.run(continue_elsewhere())
    got = desk.post(body)
    assert refusal(got) == (409, "session_open")
    assert "(process 1 on other), which has continued or ended the run" in got.json()["error"]["message"]
    assert desk.log() == []


def test_a_call_that_is_not_pending_is_refused_by_name(desk: Desk) -> None:
    assert refusal(desk.post({**desk.body(), "call_id": "nope"}))[0] == 404
    assert refusal(desk.post({**desk.body(), "run_id": "run_9"}))[0] == 404
    body = desk.body()
    row = desk.run()
    decided = apply_decisions(row.document, [ApprovalDecided("g1", approve=True)])  # in a terminal, without a log
    desk.gateway.run(desk.store.commit(Transaction(agent_run=row._replace(revision=2, document=decided))))
    got = desk.post(body)
    assert refusal(got) == (409, "approval_decided")
    assert got.json()["error"]["decision"]["decision"] == "approve"
    ended = desk.run()._replace(revision=3, status="done", document={**decided, "phase": "done"})
    desk.gateway.run(desk.store.commit(Transaction(agent_run=ended)))
    assert refusal(desk.post(body))[0] == 404


def test_an_id_of_two_pending_calls_is_refused(desk: Desk) -> None:
    desk.add_run(paused_with_two_clerks(), "run_2")
    ids = desk.pending("run_2")
    (twice,) = {one for one in ids if ids.count(one) > 1}
    assert refusal(desk.show(twice, run_id="run_2")) == (409, "ambiguous_call")


Change = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda body: {**body, "decision": "allow"}, "invalid_value"),
        (lambda body: {**body, "decision": True}, "invalid_type"),
        (lambda body: {**body, "always": "yes"}, "invalid_type"),
        (lambda body: {**body, "reason": 1}, "invalid_type"),
        (lambda body: {**body, "decision": "reject", "reason": "x" * 10_001}, "invalid_type"),
        (lambda body: {**body, "reason": "why"}, "invalid_value"),
        (lambda body: {**body, "arguments": "{}"}, "unknown_parameter"),
        (
            lambda body: {name: value for name, value in body.items() if name != "arguments_digest"},
            "missing_required_parameter",
        ),
    ],
)
def test_an_invalid_body_is_refused_by_the_name_of_its_field(desk: Desk, change: Change, code: str) -> None:
    assert refusal(desk.post(change(desk.body()))) == (400, code)
    assert desk.log() == []


def test_the_queries_of_the_calls_are_checked(desk: Desk) -> None:
    header = bearer(desk.keys["alice"])
    for path, code in (
        (f"{APPROVALS}?run=run_1", "missing_required_parameter"),
        (f"{DECISIONS}?page=2", "unknown_parameter"),
        (f"{DECISIONS}?limit=x", "invalid_type"),
    ):
        assert refusal(desk.gateway.http.get(path, headers=header)) == (400, code)
    assert desk.gateway.http.get(f"{DECISIONS}?limit=-5", headers=header).json() == {"decisions": []}
