"""The routes of conversations and their items: one line of HTTP each, over the endpoint.

What a conversation is stands in the embedded endpoint. Here is only which fields a body may have,
and the shape in which the API gives an answer.
"""

from convo.gateway import refusals
from convo.gateway.asked import Answer, Asked, listed
from convo.gateway.queries import paging


async def create(asked: Asked) -> Answer:
    asked.only("items", "metadata")
    return await asked.endpoint.create_conversation(asked.array("items"), asked.strings("metadata"))


async def retrieve(asked: Asked) -> Answer:
    return await asked.endpoint.conversation(asked.ids["conversation_id"])


async def update(asked: Asked) -> Answer:
    asked.only("metadata")
    if "metadata" not in asked.body:
        raise refusals.missing("metadata")
    return await asked.endpoint.update_conversation(asked.ids["conversation_id"], asked.strings("metadata"))


async def delete(asked: Asked) -> Answer:
    conversation_id = asked.ids["conversation_id"]
    await asked.endpoint.delete_conversation(conversation_id)
    return {"id": conversation_id, "object": "conversation.deleted", "deleted": True}


async def add_items(asked: Asked) -> Answer:
    asked.only("items")
    if asked.body.get("items") is None:
        raise refusals.missing("items")
    return listed(await asked.endpoint.add_items(asked.ids["conversation_id"], asked.array("items")))


async def items(asked: Asked) -> Answer:
    return listed(await asked.endpoint.conversation_items(asked.ids["conversation_id"], **paging(asked.query)))


async def item(asked: Asked) -> Answer:
    return dict(await asked.endpoint.conversation_item(asked.ids["conversation_id"], asked.ids["item_id"]))


async def delete_item(asked: Asked) -> Answer:
    return await asked.endpoint.delete_item(asked.ids["conversation_id"], asked.ids["item_id"])
