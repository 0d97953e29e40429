"""Ids of calls as servers accept them: unique in a request, not too long, of allowed characters.

Models use an id again (llama.cpp and small models of Mistral give every call the same one), ids come from other
servers, and clients may write anything. Stored items keep their ids: `unique_call_ids` is applied to what is sent. An
id is used as it is the first time, if the server accepts it. Later uses get a number by their position, so the same
history has the same ids in every request, and the cached prefix stays. `CallIdRenamer` applies the same rule to the
calls of the answer, before a client sees them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import count
from typing import NamedTuple

from convo.history.items import OUTPUT_BY_CLIENT_CALL, Item, Json, StreamEvent, item_type
from convo.history.pairing import SEARCH_CALL, make_pair_step, pair_id
from convo.history.tree import derive, where


class CallIdForm(NamedTuple):
    """The form of the ids that a server accepts.

    pattern:  matches these ids
    prefix:   of an id in place of one that the server rejects
    digits:   hex digits of the hash after it
    """

    pattern: re.Pattern[str]
    prefix: str = "call_"
    digits: int = 32

    def fit(self, call_id: str) -> str:
        """Return the id itself, or one with its hash if the server rejects it."""
        if self.pattern.fullmatch(call_id):
            return call_id
        return self.prefix + sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[: self.digits]


ANY_SERVER = CallIdForm(re.compile(r"[A-Za-z0-9_-]{1,64}"))
"""OpenAI's APIs refuse more than 64 characters, Anthropic's API all other characters."""

CHAT_SERVER = CallIdForm(re.compile(r"[A-Za-z0-9_-]{1,64}|functions\.[A-Za-z0-9_-]{1,46}:[0-9]{1,6}"))
"""Kimi K2 has the name of the function in its ids. The model reads them in the history, and makes invalid calls if they
have another form (MoonshotAI/kimi-code#2503)."""

MISTRAL = CallIdForm(re.compile(r"[A-Za-z0-9]{9}"), "", 9)
"""Mistral's API refuses any other form, and so do the templates of its models at other servers."""

_MISTRAL_MODEL = re.compile(r"(?:mi|mini|code|dev|magi|math)stral|(?:mix|pix|vox)tral")


def call_id_form(model: str, *, is_chat: bool) -> CallIdForm:
    """Return the form for a model; `is_chat`: its server speaks chat completions."""
    if not is_chat:
        return ANY_SERVER
    return MISTRAL if _MISTRAL_MODEL.search(model.lower()) else CHAT_SERVER


_NUMBERED_ID = re.compile(r"(.*:)([0-9]{1,6})")


class _CallIds:
    """The ids of the calls so far, in the order of the calls."""

    def __init__(self, form: CallIdForm) -> None:
        self._form = form
        self._uses = Counter[str]()
        self._used: set[str] = set()
        self._next_numbers = Counter[str]()  # by the part before the number

    def add(self, call_id: str) -> str:
        """Add a call, and return the id that is sent for it."""
        base = self._form.fit(call_id)
        name = base
        while True:
            self._uses[base] += 1
            if self._uses[base] > 1:
                name = self._form.fit(self._with_number(base))
            if name not in self._used:
                self._used.add(name)
                if match := _NUMBERED_ID.fullmatch(name):
                    self._next_numbers[match[1]] = max(self._next_numbers[match[1]], int(match[2]) + 1)
                return name

    def _with_number(self, base: str) -> str:
        """Return the id for a later use. Ids that end with ":0" are counted on, as Kimi does."""
        match = _NUMBERED_ID.fullmatch(base)
        return f"{match[1]}{self._next_numbers[match[1]]}" if match else f"{base}_{self._uses[base]}"

    def add_from_answer(self, call_id: str) -> str:
        """Add a call of the answer; the first use of an id stays as it is, also if it is not sent so."""
        name = self.add(call_id)
        return call_id if name == self._form.fit(call_id) else name


def unique_call_ids(items: Sequence[Item], form: CallIdForm = ANY_SERVER) -> Sequence[Item]:
    """Return `items` with ids of calls that a server accepts, in calls and outputs alike.

    The ids of calls that the provider runs, and of outputs whose call is not among the items, stay.
    """
    return derive(items, _make_rename_step, form)


def _make_rename_step(form: CallIdForm) -> Callable[[Sequence[Item]], Iterable[Item]]:
    ids, pair, names, indexes = _CallIds(form), make_pair_step(), dict[int, str](), count()

    def rename(items: Sequence[Item]) -> Iterator[Item]:
        call_indexes = {index: call_index for index, call_index, _ in pair(items)}
        for item, index in zip(items, indexes, strict=False):
            if _is_call(item):
                names[index] = ids.add(item["call_id"])
            name = names.get(call_indexes.get(index, index))
            if name is None or name == pair_id(item):
                yield item
            else:
                yield {**item, "call_id" if isinstance(item.get("call_id"), str) else "id": name}

    return lambda items: rename(items) if names or any(map(_is_call, items)) else items


def _is_call(item: Item) -> bool:
    """Return whether a client runs the call; a server's own ids stay."""
    kind = item_type(item)
    is_client_search = kind == SEARCH_CALL and item.get("execution") != "server"
    return (kind in OUTPUT_BY_CLIENT_CALL or is_client_search) and isinstance(item.get("call_id"), str)


_CALLS = where(_is_call)


class CallIdRenamer:
    """Gives the calls of one answer ids that no call of its input and no earlier call of the answer has."""

    def __init__(self, items: Sequence[Item], form: CallIdForm = ANY_SERVER) -> None:
        self._items, self._form = items, form
        self.input = unique_call_ids(items, form)
        """The input as it is sent."""
        self._names: dict[str, dict[Json, str]] = {}  # by the server's id, and by output_index

    @cached_property
    def _ids(self) -> _CallIds:
        ids = _CallIds(self._form)
        for index in derive(self._items, _CALLS):
            ids.add(self._items[index]["call_id"])
        return ids

    def rename_event(self, event: StreamEvent) -> StreamEvent:
        """Return an event of the answer with the ids that its calls have for clients."""
        item, response = event.get("item"), event.get("response")
        if isinstance(item, Mapping) and _is_call(item):
            names = self._names.setdefault(item["call_id"], {})
            return {**event, "item": self._rename(item, names, event.get("output_index"))}
        output = response.get("output") if isinstance(response, Mapping) else None
        if not isinstance(response, Mapping) or not isinstance(output, list | tuple):
            return event
        return {**event, "response": {**response, "output": self._rename_output(output)}}

    def _rename_output(self, output: Sequence[Item]) -> list[Item]:
        """Return the items of the whole answer; servers may leave out or insert some of those that were streamed."""
        unused = {call_id: dict(names) for call_id, names in self._names.items()}
        renamed: list[Item] = []
        for index, item in enumerate(output):
            if isinstance(item, Mapping) and _is_call(item):
                names = unused.get(item["call_id"], {})
                streamed_index = index if index in names else next(iter(names), index)
                renamed.append(self._rename(item, names, streamed_index))
                names.pop(streamed_index, None)
            else:
                renamed.append(item)
        return renamed

    def _rename(self, item: Item, names: dict[Json, str], index: Json) -> Item:
        if index not in names:
            names[index] = self._ids.add_from_answer(item["call_id"])
        return item if names[index] == item["call_id"] else {**item, "call_id": names[index]}
