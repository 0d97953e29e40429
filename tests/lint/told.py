"""Histories for the rules: turns with all that is known of them, or a bare file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from convo.history.items import Item
from convo.history.records import EMBEDDED_SCOPE, Link, Scope, Session, Strategy
from convo.history.tree import Path, root_key
from convo.inspect.view import ConversationView
from convo.lint.model import LintView, lint_view_of_conversation
from tests.inspect.built import BEGUN, places_of

OPENAI = Scope("https://api.openai.com/v1")
ACME = Scope("https://api.openai.com/v1", organisation="org-acme")
GPT = "openai/gpt-5-mini"

DAY_S = 86_400.0


def user(words: str = "hi") -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}


def answer(words: str = "hello", **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": words, "annotations": []}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part], **more}


def call(name: str = "c1", arguments: Any = '{"city": "Bonn"}', **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": "weather", "arguments": arguments, **more}


def output(name: str = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": "sunny", **more}


def thought(number: int = 1, **more: Any) -> dict[str, Any]:
    """Sealed reasoning, as it comes with `include=["reasoning.encrypted_content"]`."""
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAAAAB", **more}


def unsealed(number: int = 1, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], **more}


@dataclass(frozen=True)
class Turn:
    """One call of a model: what was put in, what came out, and fields of its link."""

    put_in: Sequence[Item]
    came_out: Sequence[Item]
    link: Mapping[str, Any] = field(default_factory=dict)


def turn(put_in: Sequence[Item], came_out: Sequence[Item], **link: Any) -> Turn:
    return Turn(put_in, came_out, link)


def told(
    strategy: Strategy,
    *turns: Turn,
    waiting: Sequence[Item] = (),
    scope: Scope = EMBEDDED_SCOPE,
    model: str = GPT,
    age_s: float = 60.0,
    **session: Any,
) -> LintView:
    """A session of these turns: resp_1, resp_2, ... a minute apart.

    waiting:  said since, and not acknowledged
    age_s:    how old its last response is
    """
    path, links = Path(root_key("local")), list[Link]()
    paths = [path]
    for number, one in enumerate(turns, 1):
        saw = path.append(one.put_in)
        path = saw.append(one.came_out)
        paths.append(path)
        sent = len(one.put_in) if strategy in (Strategy.CHAIN, Strategy.CONVERSATION) else len(saw)
        link = Link(
            id=f"resp_{number}",
            input_head=saw.head,
            head=path.head,
            sent_count=sent,
            model=model,
            strategy=strategy,
            status="completed",
            created_at=BEGUN + 60 * number,
            parent_id=links[-1].id if links else None,
            scope=scope,
            is_stored=strategy in (Strategy.CHAIN, Strategy.CONVERSATION),
        )
        links.append(replace(link, **one.link))
    last, mark = (links[-1] if links else None), path.head
    path = path.append(waiting)
    record = Session(
        id="ses_1",
        name="monads",
        strategy=strategy,
        model=model,
        head=path.head,
        confirmed_head=mark,
        created_at=BEGUN,
        used_at=BEGUN,
        scope=scope,
        link_id=last.id if last else None,
        handle=last.id if last and strategy is Strategy.CHAIN else None,
    )
    record = replace(record, **session)
    known = ConversationView(
        handle="monads",
        strategy=strategy,
        scope=record.scope,
        path=path,
        confirmed_head=mark,
        links=tuple(links),
        path_index=places_of([*paths, path]),
        current_link_id=record.link_id,
        session=record,
    )
    return lint_view_of_conversation(known, (last.created_at if last else BEGUN) + age_s)
