"""Histories for the lint rules: sessions with links."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from convo.history.items import Item
from convo.history.records import EMBEDDED_SCOPE, Link, Scope, Session, Strategy
from convo.history.tree import Path, root_key
from convo.inspect.view import ConversationView
from convo.lint.model import LintView, lint_view_of_conversation
from tests.inspect.conversation_builder import START_TIME, path_index_of

OPENAI = Scope("https://api.openai.com/v1")
ACME = Scope("https://api.openai.com/v1", organisation="org-acme")
GPT = "openai/gpt-5-mini"

DAY_S = 86_400.0

REPLAY, SESSION = Strategy.REPLAY, Strategy.SESSION
CHAIN, CONVERSATION = Strategy.CHAIN, Strategy.CONVERSATION

INSTRUCTED = {"parameters": {"instructions": "Be brief."}}
COMPACTION = {"type": "compaction", "encrypted_content": "convo1:openai/gpt-5-mini:0:x"}
APPROVAL_REQUEST = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "x",
    "name": "pay",
    "arguments": "{}",
}
APPROVAL_RESPONSE = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}


def user(text: str = "hi") -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def answer(text: str = "hello", **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part], **more}


def call(call_id: str = "c1", arguments: Any = '{"city": "Bonn"}', **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": arguments, **more}


def output(call_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "sunny", **more}


def sealed_reasoning(number: int = 1, **more: Any) -> dict[str, Any]:
    """Return reasoning with encrypted content, as servers send it for `include=["reasoning.encrypted_content"]`."""
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAAAAB", **more}


def unsealed_reasoning(number: int = 1, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], **more}


@dataclass(frozen=True)
class Turn:
    """One call of a model: its new input, its output, and fields of its link."""

    input: Sequence[Item]
    output: Sequence[Item]
    link: Mapping[str, Any] = field(default_factory=dict)


def turn(input_items: Sequence[Item], output_items: Sequence[Item], **link: Any) -> Turn:
    return Turn(input_items, output_items, link)


def make_lint_view(
    strategy: Strategy,
    *turns: Turn,
    unconfirmed: Sequence[Item] = (),
    scope: Scope = EMBEDDED_SCOPE,
    model: str = GPT,
    age_s: float = 60.0,
    **session: Any,
) -> LintView:
    """Return a session of these turns, whose responses are resp_1, resp_2, ... with one minute between them.

    unconfirmed:  items after the last response
    age_s:        the age of the last response
    """
    path, links = Path(root_key("local")), list[Link]()
    paths = [path]
    for number, one in enumerate(turns, 1):
        input_path = path.append(one.input)
        path = input_path.append(one.output)
        paths.append(path)
        sent = len(one.input) if strategy in (CHAIN, CONVERSATION) else len(input_path)
        link = Link(
            id=f"resp_{number}",
            input_head=input_path.head,
            head=path.head,
            sent_count=sent,
            model=model,
            strategy=strategy,
            status="completed",
            created_at=START_TIME + 60 * number,
            parent_id=links[-1].id if links else None,
            scope=scope,
            is_stored=strategy in (CHAIN, CONVERSATION),
        )
        links.append(replace(link, **one.link))
    last, confirmed_head = (links[-1] if links else None), path.head
    path = path.append(unconfirmed)
    record = Session(
        id="ses_1",
        name="monads",
        strategy=strategy,
        model=model,
        head=path.head,
        confirmed_head=confirmed_head,
        created_at=START_TIME,
        used_at=START_TIME,
        scope=scope,
        link_id=last.id if last else None,
        handle=last.id if last and strategy is CHAIN else None,
    )
    record = replace(record, **session)
    view = ConversationView(
        handle="monads",
        strategy=strategy,
        scope=record.scope,
        path=path,
        confirmed_head=confirmed_head,
        links=tuple(links),
        path_index=path_index_of([*paths, path]),
        current_link_id=record.link_id,
        session=record,
    )
    return lint_view_of_conversation(view, (last.created_at if last else START_TIME) + age_s)
