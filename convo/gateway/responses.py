"""The routes of responses: one line of HTTP each, over the endpoint.

What a response is stands in the embedded endpoint. Here is only which fields go together, and
whether the events are told as they come or gathered into one answer.
"""

from convo.gateway import refusals
from convo.gateway.asked import Answer, Asked, listed
from convo.gateway.queries import paging
from convo.gateway.relaying import Answering


async def create(asked: Asked) -> Answer:
    streamed = asked.flag("stream")
    body = {**asked.body, "stream": streamed}
    events = asked.endpoint.create(body)
    if body.get("background") is True:
        return Answering(events, streamed, early=True)
    return Answering(asked.inspected.going.told(asked.tenant, events), streamed)


async def retrieve(asked: Asked) -> Answer:
    query = asked.query
    if query.get("stream"):
        events = asked.endpoint.follow(asked.ids["response_id"], after=query.get("starting_after"))
        return Answering(events, streamed=True, maybe=True)
    if "starting_after" in query:
        raise refusals.only_with("starting_after", "stream=true")
    return await asked.endpoint.retrieve(asked.ids["response_id"])


async def delete(asked: Asked) -> Answer:
    response_id = asked.ids["response_id"]
    await asked.endpoint.delete(response_id)
    return {"id": response_id, "object": "response", "deleted": True}


async def cancel(asked: Asked) -> Answer:
    return await asked.endpoint.cancel(asked.ids["response_id"])


async def input_items(asked: Asked) -> Answer:
    return listed(await asked.endpoint.input_items(asked.ids["response_id"], **paging(asked.query)))


async def compact(asked: Asked) -> Answer:
    return await asked.endpoint.compact(asked.body)


async def count(asked: Asked) -> Answer:
    tokens = await asked.endpoint.count(asked.body)
    return {"object": "response.input_tokens", "input_tokens": tokens}
