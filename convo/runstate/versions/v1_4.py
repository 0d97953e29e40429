"""1.4: a model response has the id of its request (first written by 0.10.2)."""

from convo.runstate.format import Version

VERSION = Version(
    "1.4",
    "0.10.2",
    "a model response keeps the id of its request",
    keys=("model_responses[].request_id", "last_model_response.request_id"),
)
