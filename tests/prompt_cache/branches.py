"""One branch of requests, as a chat that owns its history sends and stores them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from convo.history.records import COMPACTION_CONTEXT_MANAGEMENT, EMBEDDED_SCOPE, Link, Scope, Strategy
from convo.history.tree import Key, Path, root_key
from convo.inspect.view import PathIndex
from convo.prompt_cache.forecast import PrefixForecast, describe_changed_reasoning, forecast_prefix

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
        return forecast_prefix(self.links, self.plan(), self.index, {})

    def plan(self) -> Link:
        """Return the link of the next request."""
        self.index.add(self.path)
        return self._make_link(self.path.head, self.path)

    def describe_changed_reasoning(self) -> dict[str, str]:
        """Return the sentence for each reasoning item of the next request that has another prefix, by its seal."""
        self.index.add(self.path)
        planned = self._make_link(self.path.head, self.path)
        found = describe_changed_reasoning(self.links, planned, self.index)
        return {self.path.items[index]["encrypted_content"]: text for index, text, _ in found}

    def answer(self, output: Sequence[Item], usage: Mapping[str, Any] | None = None) -> None:
        """Store the request and its response."""
        link = replace(self._make_link(self.path.head, self.path.append(output)), usage=usage)
        self.path = self.path.append(output)
        self._add_link(link)
        self.now += 10.0

    def compact(self, items: Sequence[Item]) -> None:
        """Replace the history, as `convo compact` stores it."""
        path = Path(self.path.root).append(items)
        self.index.add(self.path)
        parameters = {"context_management": COMPACTION_CONTEXT_MANAGEMENT}
        link = replace(self._make_link(self.path.head, path), parameters=parameters)
        self.path = path
        self._add_link(link)

    def _make_link(self, input_head: Key, path: Path) -> Link:
        return Link(
            id=f"resp_{len(self.links)}",
            input_head=input_head,
            head=path.head,
            sent_count=len(path),
            model=self.model,
            strategy=Strategy.SESSION,
            status="completed",
            created_at=self.now,
            parameters=dict(self.parameters),
            scope=self.scope,
        )

    def _add_link(self, link: Link) -> None:
        self.index.add(self.path)
        self.links.append(link)
