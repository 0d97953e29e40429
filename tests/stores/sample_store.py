"""A store with two sessions, a conversation, events and an agent run, in a database of any type."""

import asyncio

from convo.history.items import user_message
from convo.history.records import AgentCall, AgentRun, ApprovalDecision
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Conversation, Store, Transaction
from convo.stores.factory import open_store
from tests.stores.chat_transactions import NOW, link, session


def fill_store(url: str) -> None:
    """Store the session "early" with two items, and "late" with the same two and a third."""

    async def fill() -> None:
        store = open_store(url)
        await fill_open_store(store)
        await store.aclose()

    asyncio.run(fill())


async def fill_open_store(store: Store) -> None:
    """Store what `fill_store` stores."""
    path = Path(root_key("local")).append([user_message("one"), user_message("two"), user_message("three")])
    for number in (2, 3):
        part = path.first(number)
        name = {2: "early", 3: "late"}[number]
        response = link(
            f"resp_{number}",
            path.keys[number - 2],
            part.head,
            session_id=f"ses_{number}",
            parent_id="resp_2" if number == 3 else None,
            conversation_id="conv_1",
            created_at=NOW + number,
            usage={"input_tokens": number},
            parameters={"instructions": "Be brief."},
            previous_response_id=None,
        )
        record = session(id=f"ses_{number}", name=name, head=part.head, confirmed_head=part.head, link_id=response.id)
        conversation = Conversation("conv_1", part.head, NOW, ("a", "b", "c")[:number], {"topic": "x"})
        await store.commit(
            Transaction(
                (AppendItems(path.root, part.items),),
                (response,),
                record,
                conversation=conversation,
                started_run_id=response.id,
            )
        )
        await store.append_events(response.id, [{"sequence_number": 0, "type": "x"}])
    run = AgentRun("run_1", "ses_3", 1, "paused", {"version": 1, "agent": "a", "phase": "X"}, NOW, NOW)
    call = AgentCall("run_1", "call_1", NOW, has_ended=True, output="done")
    decision = ApprovalDecision("run_1", "call_1", "a", "look", "{}", approved=True, decided_at=NOW)
    await store.commit(Transaction(agent_run=run, agent_calls=(call,), approval_decisions=(decision,)))
