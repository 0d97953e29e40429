"""Transcripts of a gateway: requests with their whole responses.

Each `.txt` file is a transcript with an empty gateway. "> METHOD PATH" begins a request; the other lines with ">" are
its headers and its body. The lines after it are the response: the status, its headers, and its body, JSON with one
field on a line. Ids and times have placeholders (see `tests.placeholders`), and a request may name them.

`python -m tests.server.transcripts [NAME ...]` sends the requests and writes the files again: read the difference
before you commit it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.placeholders import Placeholders
from tests.server.gateway import RunningGateway

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))

REQUEST = re.compile(r"> (GET|POST|PUT|DELETE|PATCH|OPTIONS|HEAD) \S+$")
CHANGING_HEADERS = ("date", "content-length", "server", "x-request-id", "openai-processing-ms")
"""Headers whose value differs in each run."""

MEASURED = re.compile(r"^(process_\w+|\w+_(?:seconds|bytes)\w*(?:{.*})?) \S+$", re.MULTILINE)
"""A line of /metrics whose value differs in each run."""


REPLIES: Mapping[str, Sequence[dict[str, Any]]] = {
    "one": (
        {
            "reasoning": "Oslo, then.",
            "call": {"name": "weather", "arguments": {"city": "Oslo"}, "call_id": "call_oslo"},
        },
        {"text": "It rains.", "usage": {"cached": 3, "written": 2, "reasoning": 1}},
    ),
    "two": ({"refusal": "I will not."}, {"reasoning": "Four, then.", "text": "4"}),
    "broken": ({"text": "Half an ans", "error": {"code": "overloaded", "message": "Busy", "status": 503}},),
    "refused": (
        {"error": {"code": "invalid_prompt", "message": "No.", "status": 400}},
        {"error": {"code": "rate_limit_exceeded", "message": "Slow down.", "status": 429}},
        {"error": {"code": "server_error", "message": "Broken.", "status": 500}},
    ),
}
"""The replies of the scripted models, by model."""


@dataclass(frozen=True)
class Exchange:
    """The lines of a request, without "> ", and those of its response."""

    request: tuple[str, ...]
    response: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([*(f"> {line}" for line in self.request), *self.response])


def read_exchanges(path: Path) -> Iterator[Exchange]:
    """Read the exchanges of a transcript. The lines before the first one are its description."""
    lines = path.read_text("utf-8").splitlines()
    starts = [number for number, line in enumerate(lines) if REQUEST.match(line)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        part = lines[start:end]
        while not part[-1]:
            part.pop()
        request = [line.removeprefix("> ") for line in part if line.startswith("> ")]
        yield Exchange(tuple(request), tuple(line for line in part if not line.startswith("> ")))


class Client:
    """Sends the requests of one transcript to a new gateway."""

    def __init__(self, gateway: RunningGateway) -> None:
        for model, replies in REPLIES.items():
            gateway.script(model, *replies)
        self._http = gateway.http
        self._placeholders = Placeholders()

    def send(self, exchange: Exchange) -> Exchange:
        """Send a request; returns it with its actual response."""
        lines = [self._placeholders.actual(line) for line in exchange.request]
        method, path = lines[0].split(" ")
        headers = [line.split(": ", 1) for line in lines[1:] if re.match(r"[A-Za-z-]+: ", line)]
        body = "\n".join(lines[1 + len(headers) :])
        if body:
            headers.append(["Content-Type", "application/json"])
        got = self._http.request(method, path, headers=[(name, value) for name, value in headers], content=body)
        return Exchange(exchange.request, tuple(self._placeholders.stable(_format(got)).splitlines()))


def _format(response: httpx2.Response) -> str:
    shown = sorted((name, value) for name, value in response.headers.items() if name not in CHANGING_HEADERS)
    changing = sorted(name for name in response.headers if name in CHANGING_HEADERS)
    try:
        text = json.dumps(response.json(), indent=1, ensure_ascii=False)
    except ValueError:
        text = MEASURED.sub(r"\1 N", response.text)
    head = [str(response.status_code), *(f"{name}: {value}" for name, value in shown), ", ".join(changing)]
    return "\n".join([*head, *_body_lines(text)])


def _body_lines(text: str) -> Sequence[str]:
    return [line.rstrip() for line in text.splitlines()]
