"""An archive of recordings: a tar.xz with `cases.jsonl` and `requests.jsonl`, one JSON object a line."""

import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Recording:
    """An answer of a server, the request it belongs to, and what the answer means.

    source:   repository, path and number, as owner/repo:path#n
    api:      chat, responses or anthropic
    stream:   whether the body is an event stream
    request:  the recorded body, None if it is unknown; accepted: whether the server took it
    expected: text, reasoning and refusal: all of the answer, joined; None: unknown.
              calls: [name, arguments] in order; arguments parsed if they are an object or a list, else as text.
              finish: completed, incomplete, failed (its message in error) or refused.
              input_tokens, output_tokens, cached_tokens: None if the server did not say.
              items: types of the output items; hosted: those that only the server of the API can make.
              streamed_text: the deltas, if they differ from the text.
              n_a: why the recording is ambiguous, else None.
    """

    name: str
    source: str
    vendor: str
    api: str
    stream: bool
    request: Mapping[str, Any] | None
    accepted: bool
    status: int
    content_type: str
    body: str
    expected: Mapping[str, Any]

    @property
    def is_failed(self) -> bool:
        return bool(self.expected["finish"] == "failed")


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A further request, whose answer has the content of the recording `of`."""

    name: str
    api: str
    request: Mapping[str, Any]
    accepted: bool
    of: str


class Archive(NamedTuple):
    recordings: list[Recording]
    requests: list[RecordedRequest]


def from_row(kind: type[T], row: Mapping[str, Any]) -> T:
    return kind(**{name: row[name] for name in kind.__annotations__})


def load_archive(file: Path) -> Archive:
    with tarfile.open(file, "r:xz") as archive:
        lines = {Path(member.name).name: list(archive.extractfile(member) or ()) for member in archive.getmembers()}
    return Archive(
        [from_row(Recording, json.loads(line)) for line in lines["cases.jsonl"]],
        [from_row(RecordedRequest, json.loads(line)) for line in lines["requests.jsonl"]],
    )
