"""Build conversations for tests: paths, links and views."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Link, Strategy
from convo.history.tree import Key, Path, root_key
from convo.inspect.view import ConversationView, PathIndex

ROOT = root_key("local")
START_TIME = 1_700_000_000.0
"""14 November 2023, 22:13:20 UTC."""

USAGE = {
    "input_tokens": 12,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 2},
}


@dataclass
class ConversationBuilder:
    """Builds a conversation turn by turn; each turn continues a link or starts at the root."""

    strategy: Strategy = Strategy.CHAIN
    links: list[Link] = field(default_factory=list)
    paths: dict[str, Path] = field(default_factory=dict)

    def turn(self, id_: str, text: str, answer: str | None, *, after: str | None = None, **fields: Any) -> Path:
        """Add one model call that continues the link `after`, or the root if None; without an answer it failed."""
        before = self.paths[after] if after else Path(ROOT)
        input_path = before.append([user_message(text)])
        head = input_path.append([assistant_message(answer)]) if answer is not None else input_path
        sends_all = self.strategy in (Strategy.SESSION, Strategy.REPLAY)
        link = Link(
            id=id_,
            input_head=input_path.head,
            head=head.head,
            sent_count=len(input_path) if sends_all else 1,
            model="local/demo",
            strategy=self.strategy,
            status="completed" if answer is not None else "failed",
            created_at=START_TIME + 60 * len(self.links),
            parent_id=after,
            previous_response_id=after if self.strategy is Strategy.CHAIN else None,
            duration_s=1.25,
            usage=USAGE if answer is not None else None,
        )
        self.links.append(replace(link, **fields))
        self.paths[id_] = head
        return head

    def view(self, link_id: str | None, **fields: Any) -> ConversationView:
        """Return the view of the conversation at the end of the link `link_id`."""
        path = self.paths[link_id] if link_id else Path(ROOT)
        view = ConversationView(
            handle=link_id or "nothing",
            strategy=self.strategy,
            scope=self.links[0].scope if self.links else None,
            path=path,
            confirmed_head=path.head,
            links=tuple(self.links),
            path_index=path_index_of(self.paths.values()),
            current_link_id=link_id,
        )
        return replace(view, **fields)


def path_index_of(paths: Iterable[Path]) -> PathIndex:
    index = PathIndex(ROOT)
    for path in paths:
        index.add(path)
    return index


def build_chain(turns: int) -> ConversationBuilder:
    """Return a conversation without forks: resp_1, resp_2, ..."""
    builder = ConversationBuilder()
    for number in range(1, turns + 1):
        builder.turn(
            f"resp_{number}",
            f"question {number}",
            f"answer {number}",
            after=f"resp_{number - 1}" if number > 1 else None,
        )
    return builder


def keys(path: Path, *numbers: int) -> list[Key]:
    """Return the keys of the items with these numbers, counted from 1."""
    return [path.nodes[number - 1].key for number in numbers]


def alternating_messages(*texts: str) -> list[Item]:
    """Return messages of the user and the assistant in turn."""
    return [assistant_message(one) if index % 2 else user_message(one) for index, one in enumerate(texts)]
