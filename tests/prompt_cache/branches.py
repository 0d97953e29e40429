"""One branch of requests, as a chat that owns its history sends and stores them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convo.history.records import COMPACTION_CONTEXT_MANAGEMENT, EMBEDDED_SCOPE, Link, Scope, Strategy
from convo.history.tree import Path, root_key
from convo.inspect.view import PathIndex
from convo.prompt_cache.forecast import PlannedRequest, PrefixForecast, forecast_prefix

Item = Mapping[str, Any]


def message(text: str, role: str = "user") -> Item:
    return {"type": "message", "role": role, "content": text}


def reasoning(seal: str) -> Item:
    return {"type": "reasoning", "id": f"rs_{seal}", "summary": [], "encrypted_content": seal}


@dataclass
class Branch:
    """The next request is `model`, `parameters` and `path`."""

    model: str
    parameters: dict[str, Any] = field(default_factory=dict)
    path: Path = field(default_factory=lambda: Path(root_key("")))
    scope: Scope = EMBEDDED_SCOPE
    now: float = 0.0
    links: list[Link] = field(default_factory=list)
    index: PathIndex = field(default_factory=lambda: PathIndex(root_key("")))

    def forecast(self) -> PrefixForecast | None:
        self.index.add(self.path)
        planned = PlannedRequest(self.model, self.scope, self.parameters, self.path.head, False, self.now)
        return forecast_prefix(self.links, planned, self.index, {})

    def answer(self, output: Sequence[Item], usage: Mapping[str, Any] | None = None) -> None:
        """Store the request and its response."""
        self._add_link(self.path.head, self.path.append(output), self.parameters, usage)
        self.now += 10.0

    def compact(self, items: Sequence[Item]) -> None:
        """Replace the history, as `convo compact` stores it."""
        parameters = {"context_management": COMPACTION_CONTEXT_MANAGEMENT}
        self._add_link(self.path.head, Path(self.path.root).append(items), parameters, None)

    def _add_link(self, input_head: Any, path: Path, parameters: Mapping[str, Any], usage: Any) -> None:
        self.path = path
        self.index.add(path)
        self.links.append(
            Link(
                id=f"resp_{len(self.links)}",
                input_head=input_head,
                head=path.head,
                sent_count=len(path),
                model=self.model,
                strategy=Strategy.SESSION,
                status="completed",
                created_at=self.now,
                parameters=dict(parameters),
                scope=self.scope,
                usage=usage,
            )
        )
