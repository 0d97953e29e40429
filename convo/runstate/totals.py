"""Tokens of a run and of its answers, in the words of the format.

An endpoint counts one answer; a state counts every answer and the run. Details stand in a list of
one where they are a total, and by themselves where they are an entry.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from convo.items import Json

TOKENS = ("input_tokens", "output_tokens", "total_tokens")
DETAILS = {
    "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}

Said = Mapping[str, Any]


def response(output: list[Json], response_id: str | None, said: Said | None) -> dict[str, Json]:
    """One answer of a model."""
    return {"usage": _counted([said], entries=False), "output": output, "response_id": response_id, "request_id": None}


def usage(before: Said | None, answers: Iterable[Said | None]) -> dict[str, Json]:
    """The tokens of a run: those of a state that it goes on from, and those of its own answers."""
    return _added(before, _counted(list(answers), entries=True)) if before else _counted(list(answers), entries=True)


def _counted(answers: list[Said | None], *, entries: bool) -> dict[str, Json]:
    said = [one for one in answers if one]
    return {
        "requests": len(answers),
        **{key: sum(one.get(key) or 0 for one in said) for key in TOKENS},
        **{name: [_details(said, name)] for name in DETAILS},
        "request_usage_entries": [_entry(one) for one in said] if entries else [],
    }


def _details(said: Iterable[Said], name: str) -> dict[str, int]:
    counted = dict(DETAILS[name])
    for one in said:
        for key, value in (one.get(name) or {}).items():
            counted[key] = counted.get(key, 0) + (value if isinstance(value, int) else 0)
    return counted


def _entry(one: Said) -> dict[str, Json]:
    return {**{key: one.get(key) or 0 for key in TOKENS}, **{name: _details([one], name) for name in DETAILS}}


def _added(before: Said, more: dict[str, Json]) -> dict[str, Json]:
    """Both together; what else the first one says stays."""
    counts = {key: (before.get(key) or 0) + more[key] for key in ("requests", *TOKENS)}
    details = {name: [_details([*(before.get(name) or ()), *more[name]], name)] for name in DETAILS}
    entries = [*(before.get("request_usage_entries") or ()), *more["request_usage_entries"]]
    return {**before, **counts, **details, "request_usage_entries": entries}
