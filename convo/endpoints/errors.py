"""An error of ours as the error object of the API.

    {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}

The other way is `convo.models.foreign`: what one writes the other reads. A code that is only the
class's own default says nothing that `type` does not say and travels as null.
"""

from convo.errors import ConvoError, EndpointFault, KeyRefused, NotFound, StoreFault, TryLater
from convo.items import Json

FINAL = (".", "!", "?")
WITHOUT_CODE = frozenset({"missing_api_key"})
"""Codes of ours for errors that the real API sends without one."""
NO_STORE = "The server cannot use its store now. Please retry in a few seconds"


def error_object(fault: ConvoError) -> dict[str, Json]:
    """What stands under "error" in an answer with `fault.status`."""
    return {
        "message": _sentence(fault),
        "type": _type(fault),
        "param": getattr(fault, "param", None),
        "code": _code(fault),
    }


def error_event(fault: ConvoError, sequence_number: int) -> dict[str, Json]:
    """The event that ends a stream which had no response to fail.

    Clients read it in two ways: the specification nests the error, the openai package reads the
    fields beside `type`. One object carries both.
    """
    error = error_object(fault)
    flat = {name: error[name] for name in ("code", "message", "param")}
    return {"type": "error", "sequence_number": sequence_number, **flat, "error": error}


def _sentence(fault: ConvoError) -> str:
    """What a client is told; where the store is, and what is wrong with it, is for whoever runs the server."""
    message = NO_STORE if isinstance(fault, StoreFault) else fault.message
    if isinstance(fault, NotFound):
        message = f"{fault.kind.capitalize()} with id '{fault.handle}' not found"
    return message if message.endswith(FINAL) else f"{message}."


def _type(fault: ConvoError) -> str:
    if isinstance(fault, TryLater) and fault.status == 429:
        return "requests" if fault.code == "rate_limit_exceeded" else "rate_limit_error"
    return "invalid_request_error" if fault.status < 500 else "server_error"


def _code(fault: ConvoError) -> str | None:
    if isinstance(fault, NotFound) or fault.code in WITHOUT_CODE:
        return None
    named = isinstance(fault, EndpointFault) and fault.code == type(fault).code
    return None if named and not isinstance(fault, KeyRefused) else fault.code
