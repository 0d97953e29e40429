"""Responses and Conversations as convo itself keeps them, over a store and models.

Read `turn` first: one request from its history to its last event, while somebody reads, with
`listening` (to the model), `lock` (one writer) and `edges` (what it touches). `background` is the
same without a reader, with `ledger` (what it told), `following` (who reads that) and `runs` (what
goes on in this process). Around them stand plain functions: `requests` and `inputs` (what may be
asked, value by value in `checks`, and by the letter in `strict`), `refusals` (the real API's
words), `context` and `opening` (where a request goes on from), `pairs` (what a model may see),
`compacting` (what it is shown of that, and makes smaller) with `summarising`, `sealing` and
`fitting`, `ending` and `resource` (what is left of it). `conversations`, with `membership` and
`listing`, is the other half; `endpoint` is both together, `connection` one client's chain,
`service` the endpoints of all tenants, `stateless` one that keeps nothing.
"""

from convo.endpoints.embedded.edges import SPECIFIED, Manner, Models
from convo.endpoints.embedded.endpoint import Embedded
from convo.endpoints.embedded.service import Service

__all__ = ["SPECIFIED", "Embedded", "Manner", "Models", "Service"]
