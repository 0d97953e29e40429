"""Responses and Conversations as convo itself keeps them, over a store and models.

Read `turn` first: one request from its history to its last event. Around it stand plain functions:
`requests` and `inputs` (what may be asked), `refusals` (the real API's words), `context` (where a
request goes on from), `pairs` (what a model may see), `ending` and `resource` (what is left of it).
`conversations`, with `membership` and `listing`, is the other half; `endpoint` is both together.
"""

from convo.endpoints.embedded.endpoint import Embedded
from convo.endpoints.embedded.turn import Models

__all__ = ["Embedded", "Models"]
