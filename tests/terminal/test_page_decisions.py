"""Decisions on the inspector page, or with `convo approvals`, while a chat waits at its approval prompt."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from convo.server.auth import KeysFile, create_api_key
from tests import databases
from tests.cli.agent_files import PAID_BACK, REFUND, agent_flags, tool_runs, two_refund_calls
from tests.cli.chat_commands import scripted_flags
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Launch
from tests.server.api_keys import bearer
from tests.server.gateway import RunningGateway, run_gateway
from tests.terminal.pty_session import PtySession, at_terminal
from tests.terminal.screen import open_screen
from tests.terminal.test_approval_prompt import QUESTION, answer_prompt, open_approval_prompt

pytestmark = pytest.mark.needs("terminal")

APPROVED = "refund (c1) approved on the page by local"


class Page:
    """The HTTP requests of the inspector page, with a key."""

    def __init__(self, gateway: RunningGateway, key: str) -> None:
        self.gateway, self._headers = gateway, bearer(key)

    @property
    def run_id(self) -> str:
        (run,) = self.gateway.run(self.gateway.store.agent_runs())
        return run.id

    def load_call(self, call_id: str) -> dict[str, Any]:
        query = {"run": self.run_id, "call": call_id}
        shown = self._request("GET", params=query).json()
        return {name: shown[name] for name in ("run_id", "call_id", "arguments_digest", "csrf_token")}

    def post(self, body: dict[str, Any]) -> httpx2.Response:
        return self._request("POST", json=body)

    def decide(self, decision: str, call_id: str = "c1", **fields: Any) -> Any:
        got = self.post({**self.load_call(call_id), "decision": decision, **fields})
        assert got.status_code == 200, got.text
        return got.json()

    def log(self) -> list[tuple[str, bool, str]]:
        logged = self.gateway.run(self.gateway.store.approval_decisions())
        return [(one.call_id, one.approved, one.source) for one in logged]

    def _request(self, method: str, **content: Any) -> httpx2.Response:
        return self.gateway.http.request(method, "/inspect/api/approvals", headers=self._headers, **content)


@contextmanager
def open_inspector(folder: Path, store_url: str) -> Iterator[Page]:
    key = create_api_key(folder / "keys", "local")
    with run_gateway(folder / "served", store_url, keys=KeysFile(folder / "keys")) as gateway:
        yield Page(gateway, key)


@pytest.fixture
def page(home: Path, tmp_path: Path) -> Iterator[Page]:
    """The page over the store of the command line."""
    with open_inspector(tmp_path, f"sqlite:{home / DATABASE}") as opened:
        yield opened


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_an_approval_on_the_page_continues_the_run_of_the_open_chat(term: str, page: Page) -> None:
    model = scripted_flags(REFUND, PAID_BACK)
    with at_terminal("chat", *agent_flags(), *model, "-n", "mine", columns=120, term=term) as terminal:
        open_approval_prompt(terminal)
        terminal.type_keys("reject too m")
        terminal.wait_for_text("too m")
        assert page.decide("approve")["open_in"].startswith("process ")
        output = terminal.wait_for_text(" · session mine")
        assert APPROVED in output
        assert "your answer was not used: reject too m" in output
        assert "refund returned paid 500 cents back for A1" in output
        terminal.wait_for_prompt()
        assert terminal.send_line("/status")  # the chat reads its next line as usual
        assert terminal.end_session() == 0
    assert tool_runs() == ["refund A1 500"]
    assert page.log() == [("c1", True, "page")]


def test_the_prompt_of_a_call_that_is_rejected_on_the_page_is_erased(page: Page) -> None:
    with open_screen("chat", *agent_flags(), *scripted_flags(REFUND, {"text": "Sorry."}), columns=100) as screen:
        screen.wait_for_prompt()
        screen.type_keys("pay it back\r")
        screen.wait_for_text(QUESTION)
        screen.type_keys("appr")
        screen.wait_for_text(f"{QUESTION} appr")
        page.decide("reject", reason="not on a Friday")
        screen.wait_for_prompt("Sorry.")
        lines = screen.text().splitlines()
        assert "refund (c1) rejected on the page by local: not on a Friday" in lines
        assert "your answer was not used: appr" in lines
        assert QUESTION not in screen.text()
        screen.type_keys("\x1b[A")  # Up: the answer is in the history of the prompt
        screen.wait_for_text("> appr")
    assert tool_runs() == []


def test_a_decision_on_another_call_is_shown_and_keeps_the_typed_answer(page: Page) -> None:
    with at_terminal("chat", *agent_flags(), *two_refund_calls(), "-n", "mine", columns=120) as terminal:
        open_approval_prompt(terminal)
        terminal.type_keys("appr")
        terminal.wait_for_text("appr")
        page.decide("reject", "c2", reason="a duplicate")
        terminal.wait_for_text("refund (c2) rejected on the page by local: a duplicate")
        terminal.wait_for_text("appr")
        terminal.type_keys("ove\r")
        output = terminal.wait_for_text("Paid back.")
        assert "call       c2" not in output
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert tool_runs() == ["refund A1 100"]
    assert page.log() == [("c1", True, "run"), ("c2", False, "page")]


def test_an_answer_typed_for_a_replaced_question_does_not_decide_the_next_call(page: Page) -> None:
    with at_terminal("chat", *agent_flags(), *two_refund_calls(), "-n", "mine", columns=120) as terminal:
        open_approval_prompt(terminal)
        page.decide("reject", "c1")
        terminal.wait_for_text("refund (c1) rejected on the page by local")
        terminal.wait_for_text(QUESTION)
        answer_prompt(terminal, "y", "this question is about refund (c2): enter approve again")
        assert page.log() == [("c1", False, "page")]
        answer_prompt(terminal, "reject", "Paid back.")
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert tool_runs() == []
    assert page.log() == [("c2", False, "run"), ("c1", False, "page")]


def test_a_plain_prompt_tells_the_decision_on_another_call_after_the_answer(page: Page, launch: Launch) -> None:
    with at_terminal("chat", *agent_flags(), *two_refund_calls(), "-n", "mine", columns=120, term="dumb") as terminal:
        open_approval_prompt(terminal)
        assert launch("approvals", "approve", "c2").exit == 0
        output = answer_prompt(terminal, "approve", "Paid back.")
        assert "refund (c2) approved with convo approvals" in output
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert sorted(tool_runs()) == ["refund A1 100", "refund A2 200"]


def test_always_on_the_page_decides_all_calls_of_the_open_chat(page: Page) -> None:
    with at_terminal("chat", *agent_flags(), *two_refund_calls(), "-n", "mine", columns=120) as terminal:
        open_approval_prompt(terminal)
        page.decide("approve", always=True)
        output = terminal.wait_for_text("Paid back.")
        assert "refund (c1) approved always on the page by local" in output
        assert "refund (c2) approved always on the page by local" in output
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert sorted(tool_runs()) == ["refund A1 100", "refund A2 200"]


def test_a_question_of_convo_resume_ends_with_the_decision_on_the_page(page: Page, launch: Launch) -> None:
    model = scripted_flags(REFUND, PAID_BACK)
    assert launch("chat", *agent_flags(), *model, "-n", "mine", "pay it back").exit == 3
    with at_terminal("resume", "mine", *agent_flags(), *model, columns=120) as terminal:
        terminal.wait_for_text(QUESTION)
        page.decide("approve")
        assert terminal.wait_for_exit() == 0
        assert APPROVED in terminal.output
        assert "Paid back." in terminal.output
    assert tool_runs() == ["refund A1 500"]


def test_a_chat_that_is_killed_leaves_the_decision_to_convo_resume(page: Page, launch: Launch) -> None:
    model = scripted_flags(REFUND, PAID_BACK)
    with at_terminal("chat", *agent_flags(), *model, "-n", "mine") as terminal:
        open_approval_prompt(terminal)
        os.kill(terminal.child.pid, signal.SIGSTOP)  # it does not notice the decision before its end
        page.decide("approve")
        os.kill(terminal.child.pid, signal.SIGKILL)
        terminal.wait_for_exit()
    assert tool_runs() == []
    assert launch("resume", "mine", *agent_flags(), *model).exit == 0
    assert tool_runs() == ["refund A1 500"]


def decide_at_once(page: Page, terminal: PtySession, count: int) -> list[httpx2.Response]:
    """Let `count` people on the page and the user at the prompt decide the first call; the user approves it."""
    bodies = [{**page.load_call("c1"), "decision": "reject" if number % 2 else "approve"} for number in range(count)]

    async def post_all() -> list[httpx2.Response]:
        tasks = [asyncio.create_task(asyncio.to_thread(page.post, body)) for body in bodies]
        await asyncio.to_thread(terminal.type_keys, "approve\r")
        return list(await asyncio.gather(*tasks))

    return asyncio.run(post_all())


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def test_of_eight_people_and_the_user_at_the_prompt_the_first_decides(store: str, home: Path, tmp_path: Path) -> None:
    url = f"sqlite:{home / DATABASE}" if store == "sqlite" else databases.new_database()
    model = scripted_flags(REFUND, PAID_BACK)
    with (
        open_inspector(tmp_path, url) as page,
        at_terminal("chat", *agent_flags(), *model, "-n", "mine", columns=120, env={"CONVO_STORE": url}) as terminal,
    ):
        open_approval_prompt(terminal)
        answers = decide_at_once(page, terminal, 8)
        output = terminal.wait_for_text(" · session mine")
        ((call_id, is_approved, source),) = page.log()
        won = [got for got in answers if got.status_code == 200]
        assert (call_id, len(won)) == ("c1", int(source == "page"))
        refused = [got.json()["error"] for got in answers if got.status_code != 200]
        assert {(error["code"], error["decision"]["source"]) for error in refused} == {("approval_decided", source)}
        if source == "page":
            verdict = "approved" if is_approved else "rejected"
            assert f"{verdict} on the page by local" in output
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert tool_runs() == (["refund A1 500"] if is_approved else [])
    if store == "postgresql":
        databases.drop(url)
