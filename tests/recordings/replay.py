"""Replay an archive: every recording in every way that fits it, through one `convo serve --record` and one `convo tap`.

stream, plain:  POST /v1/responses with and without `stream`: recorded streams, errors and answers of the Responses API;
                a whole one of these is sent as events
framed:         the same with `stream`: whole answers of chat and Claude, sent as a stream
pass:           the recorded request, to the path of its own API (Responses: through `convo tap`): the recorded body
                comes back unchanged
record:         what the inspector shows of that request

A recording of the Responses API is sent its recorded request; a simple one if convo refuses that, or if it refers to
state of the server. The others are sent a simple one with the tools that the answer calls.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from tests.clients.conftest import gateway
from tests.recordings.answers import NOT_SENT, REFUSED, RIGHT, WRONG, Answer, Outcome, judge, judge_reply, shown
from tests.recordings.archive import Archive, RecordedRequest, Recording
from tests.recordings.upstream import FRAMED, run_recorded_server

PATHS = {"chat": "/v1/chat/completions", "anthropic": "/v1/messages", "responses": "/v1/responses"}

SETTINGS = "".join(f'[providers.real-{api}]\napi = "{api}"\nbase_url = "{{url}}"\n' for api in PATHS)

THREADS = 6
TIMEOUT_S = 60.0


@dataclass
class Replayed:
    """A recording and its outcome in each way.

    refused_request:  why convo refused the recorded request, so that a simple one was sent
    """

    recording: Recording
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    refused_request: str = ""

    @property
    def verdict(self) -> str:
        """The worst verdict of all ways."""
        verdicts = [outcome.verdict for outcome in self.outcomes.values()]
        return min(verdicts, key=[WRONG, REFUSED, NOT_SENT, RIGHT].index)

    @property
    def differences(self) -> str:
        return "; ".join(f"[{way}] {reason}" for way, (verdict, reason) in self.outcomes.items() if verdict == WRONG)


class Reply(NamedTuple):
    status: int
    body: str


class Player:
    """Sends requests to `convo serve` and `convo tap`."""

    def __init__(self, gateway: httpx2.Client, relay: httpx2.Client) -> None:
        self._gateway, self._relay = gateway, relay

    def play(self, number: int, recording: Recording) -> Replayed:
        replayed = Replayed(recording)
        if recording.expected["n_a"]:
            replayed.outcomes["none"] = Outcome(NOT_SENT, recording.expected["n_a"])
            return replayed
        whole = not (recording.stream or recording.is_failed)
        for way in ("framed",) if whole and recording.api != "responses" else ("stream", "plain"):
            model = f"real-{recording.api}/{FRAMED if whole else ''}{way}-{number}"
            replayed.outcomes[way] = attempt(self._create, replayed, model, way != "plain")
        replayed.outcomes["pass"] = attempt(self._pass, recording, number)
        return replayed

    def _create(self, replayed: Replayed, model: str, is_stream: bool) -> Outcome:
        recording, fields = replayed.recording, {"model": model, "store": False, "stream": is_stream}
        request = own_responses_request(recording)
        reply = self._post("/v1/responses", {**(request or simple_request(recording)), **fields})
        if request and 400 <= reply.status < 500 and not recording.is_failed:
            replayed.refused_request = json.loads(reply.body)["error"]["message"]
            reply = self._post("/v1/responses", {**simple_request(recording), **fields})
        return judge_reply(recording, reply.status, reply.body, is_stream=is_stream)

    def _pass(self, recording: Recording, number: int) -> Outcome:
        request = dict(recording.request or {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1000})
        request.pop("stream_options", None)
        client, prefix = self._gateway, f"real-{recording.api}/"
        if recording.api == "responses":
            client, prefix = self._relay, ""
        request |= {"model": f"{prefix}pass-{number}", "stream": recording.stream}
        reply = self._post(PATHS[recording.api], request, client)
        if client is self._gateway and recording.status == 401:  # the key is that of the gateway
            return Outcome(RIGHT if reply.status == 502 else WRONG, shown(reply.body))
        if reply.status != recording.status:
            return Outcome(WRONG, f"status {reply.status}, not {recording.status}: {shown(reply.body)}")
        return Outcome(RIGHT) if reply.body == recording.body else Outcome(WRONG, f"another body: {shown(reply.body)}")

    def read_record(self, recording: Recording, record_id: str | None) -> Outcome:
        """Compare what the inspector shows."""
        return attempt(self._read_record, recording, record_id) if record_id else Outcome(WRONG, "no record")

    def _read_record(self, recording: Recording, record_id: str) -> Outcome:
        document = self._gateway.get(f"/inspect/api/requests/{record_id}").json()
        (link,) = (link for link in document["links"] if link["response_id"] == record_id)
        items = [document["items"][key] for key in link["output"] or ()]
        return judge(recording, Answer(items, link["status"], link["usage"], link["error"]))

    def find_records(self, count: int) -> Mapping[str, str]:
        """The ids of the records of passed requests, by model; they are written behind the responses."""
        deadline = time.monotonic() + TIMEOUT_S
        while len(found := dict(self._list_records())) < count and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def _list_records(self) -> Iterator[tuple[str, str]]:
        """Yield the end of the model's name, and the id."""
        query = {"limit": "200"}
        while True:
            page = self._gateway.get("/inspect/api/requests", params=query).json()
            for row in page["data"]:
                model = row["model"].rpartition("/")[2]
                if model.startswith("pass-") and row["status"] != "in_progress":  # its end has another id
                    yield model, row["id"]
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def find_refusal(self, request: RecordedRequest, recording: Recording, number: int) -> str:
        """Why convo refuses a further request that the server took; empty if it does not."""
        body = own_responses_request(request) if request.api == "responses" else dict(request.request)
        if body is None:
            return ""
        framed = FRAMED if request.api == "responses" and not recording.stream else ""
        body |= {"model": f"real-{request.api}/{framed}more-{number}", "stream": recording.stream}
        reply = self._post(PATHS[request.api], body)
        return "" if reply.status < 400 else reply.body

    def _post(self, path: str, body: Mapping[str, Any], client: httpx2.Client | None = None) -> Reply:
        response = (client or self._gateway).post(path, json=body, headers={"authorization": "Bearer any"})
        return Reply(response.status_code, response.content.decode())


def attempt(send: Callable[..., Outcome], *arguments: Any) -> Outcome:
    """The outcome of a way; an answer that does not come or cannot be read is wrong."""
    try:
        return send(*arguments)
    except (httpx2.HTTPError, LookupError, TypeError, ValueError) as error:
        return Outcome(WRONG, repr(error))


# -- requests -------------------------------------------------------------------------------------


def own_responses_request(recorded: Recording | RecordedRequest) -> dict[str, Any] | None:
    """A request of the Responses API that does not refer to state of the server, without the fields that we choose."""
    request = recorded.request
    if recorded.api != "responses" or not request or "input" not in request:
        return None
    if request.get("previous_response_id") or request.get("conversation"):
        return None
    chosen = ("model", "stream", "store", "background", "previous_response_id", "conversation")
    return {name: value for name, value in request.items() if name not in chosen}


def simple_request(recording: Recording) -> dict[str, Any]:
    tools: dict[str, Any] = {}
    for name, arguments in recording.expected["calls"]:
        if isinstance(arguments, str) and '"custom' in recording.body:
            tools[name] = {"type": "custom", "name": name}
        elif re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            tools[name] = {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False}
    return {"input": "hi", "tools": list(tools.values())}


# -- all of an archive ----------------------------------------------------------------------------


class Results(NamedTuple):
    """refused_requests: the reason by name, of further requests that the server took."""

    replayed: list[Replayed]
    refused_requests: dict[str, str]


def replay(archive: Archive, folder: Path) -> Results:
    """Replay all recordings; `folder` is for the settings and the store of the gateway."""
    recordings = archive.recordings
    by_name = {recording.name: number for number, recording in enumerate(recordings)}
    with (
        run_recorded_server(recordings) as url,
        run_player(folder, url) as player,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        replayed = list(pool.map(player.play, range(len(recordings)), recordings))
        passed = {f"pass-{number}": one for number, one in enumerate(replayed) if "pass" in one.outcomes}
        records = player.find_records(len(passed))
        outcomes = pool.map(player.read_record, (one.recording for one in passed.values()), map(records.get, passed))
        for one, outcome in zip(passed.values(), outcomes, strict=True):
            one.outcomes["record"] = outcome
        accepted = [(request, by_name[request.of]) for request in archive.requests if request.accepted]
        refused = {
            request.name: reason
            for request, number in accepted
            if (reason := player.find_refusal(request, recordings[number], number))
        }
    return Results(replayed, refused)


@contextmanager
def run_player(folder: Path, url: str) -> Iterator[Player]:
    settings = folder / "convo.toml"
    settings.write_text(SETTINGS.format(url=url), encoding="utf-8")
    with (
        gateway(folder, "--config", str(settings), "serve", "--record", "--port", "0") as serve,
        gateway(folder, "tap", "--upstream", url, "--port", "0") as tap,
        httpx2.Client(base_url=serve, timeout=TIMEOUT_S, trust_env=False) as client,
        httpx2.Client(base_url=tap, timeout=TIMEOUT_S, trust_env=False) as relay,
    ):
        yield Player(client, relay)
