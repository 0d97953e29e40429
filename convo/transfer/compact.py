"""Compaction of a conversation: `prepare_compaction`, then `apply_compaction`.

Nothing changes before `apply_compaction`; it creates the branch that keeps the old history, then replaces the history
in one transaction, and keeps items that were appended meanwhile. A kill leaves the history before or after. The
old history stays available: NAME-before (session), a copy of the file (replay), the old resp_ or conv_ id. A
conversation is compacted in place by its endpoint, else a new one is seeded, which needs consent.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from shlex import quote
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from convo.chat.conversation import Chat
from convo.chat.files import ReplayFile, format_replay_file
from convo.chat.open import iter_numbered_paths, load_conversation_history
from convo.chat.preview import make_endpoint_counter
from convo.chat.session_record import find_free_session_name
from convo.chat.turn import RequestOptions, make_incomplete_error, make_response_fault
from convo.compaction.planning import (
    CompactionMethod,
    CompactionMode,
    CompactionOptions,
    CompactionPlan,
    CompactionThreshold,
    HistorySnapshot,
    build_replacements,
    plan_compaction,
    plan_from_items,
    threshold_tokens,
    tokens_if_over_threshold,
)
from convo.compaction.window import (
    build_summary_request,
    cut_points,
    extract_summary,
    is_summary,
    last_compaction_index,
    summary_message,
)
from convo.config.sections import ContextLimits
from convo.endpoints.base import Endpoint
from convo.errors import (
    ConvoError,
    EndpointFault,
    Interrupted,
    InvalidUsage,
    RequestRefused,
    StateFault,
    StreamBroken,
    WindowExceeded,
)
from convo.history.accumulator import TERMINAL_EVENTS
from convo.history.items import Item, Json, Response, item_type
from convo.history.records import EMBEDDED_SCOPE, Link, Scope, Strategy
from convo.history.tree import Key, Path
from convo.stores.base import Transaction
from convo.strategies.branching import items_after_point, items_for_owner, replace_history
from convo.strategies.state import ConversationState
from convo.transfer.convert import delete_seeded_conversation, seed_conversation
from convo.usage.counting import TokenCount, Usage, count_item_tokens, count_tokens
from convo.usage.models import NO_WINDOW_SETTINGS, find_model_window

ANSWERED_STATUSES = ("completed", "incomplete")

COMPACTION_TRIGGER_ITEM: Mapping[str, Json] = {"type": "compaction_trigger"}
"""The item that asks an endpoint for nothing but a compaction."""

COMPACTION_PARAMETER: Sequence[Json] = [{"type": "compaction"}]
"""How a link says that it was one."""


@dataclass(frozen=True, slots=True)
class PreparedCompaction:
    """A window that nobody has put in place yet.

    point:          the history that it stands for, the turns that it keeps included
    window:         what stands in its place; empty where the endpoint does it in its own list
    before, after:  tokens, by the same measure
    usage:          of making it; None where nobody said
    """

    plan: CompactionPlan
    point: Path
    window: tuple[Item, ...]
    before: TokenCount
    after: TokenCount
    usage: Mapping[str, Json] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction came to.

    old:    the handle by which the history before it goes on; None where it stays in the same list
    later:  how many items were written while it was made, and stand behind the window
    """

    made: PreparedCompaction
    after: TokenCount
    old: str | None
    later: int = 0


async def prepare_compaction(
    chat: Chat, wish: CompactionOptions, *, confirmed: bool = False, preview: bool = False
) -> PreparedCompaction:
    """A window for what `chat` holds; nothing is changed.

    confirmed:  a conversation may go on under another handle
    raises:     StateFault  a call waits for its output, or the window would not be smaller
                Usage       it cannot be done so;  what the endpoint answers
                StoreFull   the disk is nearly full; the model is not asked
    """
    standing = await _snapshot_history(chat)
    planned = plan_compaction(standing, wish)
    if not preview:
        await chat.edges.store.upkeep.check_room()
    if planned.way is CompactionMethod.IN_PLACE and preview:
        planned = plan_from_items(planned, here=standing.here)
    if (
        standing.strategy is Strategy.CONVERSATION
        and planned.way is not CompactionMethod.IN_PLACE
        and not (confirmed or preview)
    ):
        raise _confirmation_required(chat.session.handle)
    if planned.way is CompactionMethod.IN_PLACE:
        there = await _count_conversation(chat, standing.path)
        return PreparedCompaction(planned, standing.path, (), there, there)
    found = await run_compaction(planned, chat.asking, chat.edges.endpoint, auto=wish.mode is CompactionMode.AUTO)
    counts: list[tuple[TokenCount, TokenCount]] = []
    for window in found.windows:
        counts.append(await _count_before_and_after(chat, standing.path.items, window))
        before, after = counts[-1]
        if after.tokens < before.tokens:
            return PreparedCompaction(found.plan, standing.path, window, before, after, found.usage, found.notes)
    before, after = counts[-1]
    raise StateFault(
        f"the compacted history would not be smaller: {before} tokens before, {after} after; nothing was changed",
        hint="compact when more has been said, or convo chat with a model that sums up better",
    )


async def apply_compaction(chat: Chat, one: PreparedCompaction, *, confirmed: bool = False) -> CompactionResult:
    """Let `one` stand in place of what it was made of; this process has the right to write.

    raises:  Conflict  what it was made of is no longer there;  StoreFault;  what the endpoint answers
    """
    await chat.adopt()
    if one.plan.way is CompactionMethod.IN_PLACE:
        return await _compact_in_place(chat, one, confirmed=confirmed)
    if chat.session.strategy is Strategy.CONVERSATION:
        return await _compact_into_new_conversation(chat, one)
    link_id = chat.edges.new_id("try")
    await chat.catch_up()  # so that the branch has what was said meanwhile as well
    chat.reread()
    async with branch_kept_on_success(chat, link_id) as old:
        await chat.exchange(
            lambda held: replace_history(held, one.point, one.window),
            lambda held: _compaction_link(chat, one, held, link_id),
        )
    later = len(chat.held.path) - len(items_for_owner(one.window, chat.session.strategy))
    return CompactionResult(one, one.after, old, later)


# -- what there is --------------------------------------------------------------------------------


async def _snapshot_history(chat: Chat) -> HistorySnapshot:
    """What the owner has confirmed: a conversation is asked, since others may write in it."""
    held = chat.reread()
    path = held.path.upto(held.mark)
    if held.strategy is Strategy.CONVERSATION and held.handle:
        path = await load_conversation_history(held.handle, chat.edges)
    return HistorySnapshot(
        held.strategy, path, chat.edges.endpoint.scope == EMBEDDED_SCOPE, await _stored_responses(chat, held)
    )


async def _stored_responses(chat: Chat, held: ConversationState) -> Mapping[Key, str]:
    """The responses that the endpoint can look up, by where they ended."""
    scope, session = chat.edges.endpoint.scope, chat.session
    found = {
        link.head: link.id
        for link in await chat.edges.store.links(session.id)
        if link.stored and link.status in ANSWERED_STATUSES and link.id.startswith("resp_") and link.scope == scope
    }
    if held.strategy is Strategy.CHAIN and held.handle:
        return {**found, held.mark: held.handle}
    edited = (held.path.head, held.mark) != (session.head, session.mark)
    return found if edited or session.link not in found.values() else {**found, held.mark: str(session.link)}


async def _count_before_and_after(
    chat: Chat, before: Sequence[Item], after: Sequence[Item]
) -> tuple[TokenCount, TokenCount]:
    """Tokens of both: the endpoint's own count, or ours where it has none."""
    ask = make_endpoint_counter(chat.edges.endpoint)
    theirs = [
        await ask({"model": chat.asking.wire_model, "input": list(_countable_items(items))})
        for items in (before, after)
    ]
    one, other = theirs
    if one is not None and other is not None:
        return TokenCount(one, estimated=False), TokenCount(other, estimated=False)
    return count_tokens(before), count_tokens(after)


def _countable_items(items: Sequence[Item]) -> tuple[Item, ...]:
    return items_for_owner(items, Strategy.CHAIN)


async def _count_conversation(chat: Chat, path: Path) -> TokenCount:
    """Tokens of what a model is shown of a conversation."""
    body = {"model": chat.asking.wire_model, "conversation": chat.session.handle}
    theirs = await make_endpoint_counter(chat.edges.endpoint)(body)
    return (
        count_tokens(path.items[last_compaction_index(path.items) or 0 :])
        if theirs is None
        else TokenCount(theirs, estimated=False)
    )


def _compaction_link(chat: Chat, one: PreparedCompaction, held: ConversationState, link_id: str) -> Link:
    """The call of a compaction; what it made is what the next one sees."""
    head = Path(held.path.root).grow(items_for_owner(one.window, held.strategy)).head
    session = chat.session
    return Link(
        id=link_id,
        saw=head,
        head=head,
        sent=0,
        model=chat.asking.model,
        strategy=held.strategy,
        status="completed",
        created_at=chat.edges.clock.now(),
        parent=session.link,
        session=session.id,
        scope=session.scope,
        parameters={"context_management": COMPACTION_PARAMETER},
        usage=one.usage,
        stored=False,
    )


# -- a conversation -------------------------------------------------------------------------------


async def _compact_in_place(chat: Chat, one: PreparedCompaction, *, confirmed: bool) -> CompactionResult:
    """Let the endpoint put a compaction into its list.

    raises:  Usage          it refused, and a new conversation was not agreed to
             EndpointFault  it answered without a compaction item; what it added is deleted again
    """
    handle, asking = chat.session.handle or "", chat.asking
    said = {"instructions": asking.instructions} if asking.instructions else {}
    try:
        response = await collect_response(
            chat.edges.endpoint,
            {"model": asking.wire_model, **said, "input": [COMPACTION_TRIGGER_ITEM], "conversation": handle},
        )
    except RequestRefused as refused:
        if not confirmed:
            raise _confirmation_required(handle) from refused
        other = await prepare_compaction(chat, CompactionOptions(mode=CompactionMode.INPUT), confirmed=True)
        return await _compact_into_new_conversation(chat, other)
    try:
        check_compacted(response)
    except EndpointFault as fault:
        left = await _delete_output(chat, handle, response)
        raise EndpointFault(
            f"{fault.message}; {left or 'nothing was changed'}",
            code=fault.code,
            hint=f"convo compact {quote(handle)} --mode input --yes, for a new conversation",
        ) from fault
    path = await load_conversation_history(handle, chat.edges)
    output = response.get("output") or ()

    def mirrored(held: ConversationState) -> ConversationState:
        waiting = [node.item for node in held.unacknowledged]
        return replace(held, path=path.grow(waiting), mark=path.head)

    def link(held: ConversationState) -> Link:
        saw = path.first(len(path) - len(output)).head
        done = _compaction_link(chat, one, held, response.get("id") or chat.edges.new_id("try"))
        used = response.get("usage")
        return replace(done, saw=saw, head=path.head, usage=used, stored=True, conversation_id=handle)

    await chat.exchange(mirrored, link)
    return CompactionResult(one, await _count_conversation(chat, path), None, len(chat.held.unacknowledged))


async def _delete_output(chat: Chat, handle: str, response: Response) -> str:
    """Delete the items of an unwanted answer from a conversation; in words, what could not be deleted."""
    stay = 0
    for item in response.get("output") or ():
        try:
            await chat.edges.endpoint.delete_item(handle, str(item.get("id")))
        except ConvoError:
            stay += 1
    return f"{stay} of the items of its answer could not be deleted from {handle}" if stay else ""


async def _compact_into_new_conversation(chat: Chat, one: PreparedCompaction) -> CompactionResult:
    """Seed a new conversation with the window, and with what was said in the old one meanwhile."""
    old, owner = chat.session.handle, Strategy.CONVERSATION
    later = items_after_point(await load_conversation_history(old or "", chat.edges), one.point)
    there = await seed_conversation(items_for_owner((*one.window, *later), owner), chat.edges)

    def moved(held: ConversationState) -> ConversationState:
        waiting = [node.item for node in held.unacknowledged]
        return replace(held, path=there.path.grow(waiting), mark=there.path.head, handle=there.handle)

    def link(held: ConversationState) -> Link:
        link = _compaction_link(chat, one, held, chat.edges.new_id("try"))
        return replace(link, saw=there.path.head, head=there.path.head)

    try:
        await chat.exchange(moved, link)
    except BaseException:
        with suppress(ConvoError):
            now = await chat.edges.store.session(chat.session.id)
            if now is None or now.handle != there.handle:
                await delete_seeded_conversation(there.handle, chat.edges)
        raise
    return CompactionResult(one, one.after, old, len(later) + len(chat.held.unacknowledged))


def _confirmation_required(handle: str | None) -> InvalidUsage:
    return InvalidUsage(
        f"{handle} would go on as a new conversation with the compacted history; the old one stays as it is",
        hint="--yes agrees to that",
    )


COMPACTION_UNSUPPORTED_STATUSES = (404, 405, 501)
"""What a server answers that has no compaction."""

NOT_COMPACTED = "not_compacted"

PREVIOUS_RESPONSE_NOT_FOUND = "previous_response_not_found"

MAX_SUMMARY_SPLITS = 6
"""How often a history that is too long for one summary is made into two."""


class CompactionOutput(NamedTuple):
    """What came of asking.

    plan:     how it was done in the end
    windows:  what may stand in place of the history, the fuller one first
    usage:    of every call that it took; None where nobody said
    notes:    what a person should know, in words
    """

    plan: CompactionPlan
    windows: tuple[tuple[Item, ...], ...]
    usage: Mapping[str, Json] | None
    notes: tuple[str, ...] = ()


async def run_compaction(
    made: CompactionPlan, asking: RequestOptions, endpoint: Endpoint, *, auto: bool
) -> CompactionOutput:
    """Ask for what `prepare_compaction` plans.

    auto:    another way may be taken, where the endpoint does not have the one that was planned
    raises:  what the endpoint answers
    """
    if made.way is CompactionMethod.SUMMARY:
        words, usage, notes = await _summarize(made, made.folded, asking, endpoint, MAX_SUMMARY_SPLITS)
        return CompactionOutput(made, build_replacements(made, count_item_tokens(made.folded), words), usage, notes)
    try:
        answer = await endpoint.compact(_compact_body(made, asking))
        check_compacted(answer)
    except EndpointFault as fault:
        other = _fallback_plan(made, fault, here=endpoint.scope == EMBEDDED_SCOPE) if auto else None
        if other is None:
            raise
        found = await run_compaction(other, asking, endpoint, auto=True)
        return found._replace(notes=(f"{fault.message}; compacted by {other.way} instead", *found.notes))
    return CompactionOutput(made, ((*answer["output"], *made.kept),), answer.get("usage"))


def check_compacted(answer: Mapping[str, Json]) -> None:
    """Raises EndpointFault when an endpoint's answer has no compaction item: it did something else."""
    output = answer.get("output")
    if not isinstance(output, list) or not any(item_type(item) == "compaction" for item in output):
        raise EndpointFault("the endpoint answered without a compaction item", code=NOT_COMPACTED)


def _compact_body(made: CompactionPlan, asking: RequestOptions) -> dict[str, Json]:
    said = {"instructions": asking.instructions} if asking.instructions else {}
    if made.way is CompactionMethod.PREVIOUS:
        return {"model": asking.wire_model, **said, "previous_response_id": made.previous}
    return {"model": asking.wire_model, **said, "input": list(items_for_owner(made.folded, Strategy.CHAIN))}


def _fallback_plan(made: CompactionPlan, fault: EndpointFault, *, here: bool) -> CompactionPlan | None:
    """Another way, where the endpoint's answer is that it does not have this one."""
    if made.way is CompactionMethod.PREVIOUS and fault.code == PREVIOUS_RESPONSE_NOT_FOUND:
        return plan_from_items(made, here=here)
    if fault.code == NOT_COMPACTED and not here:
        return CompactionPlan(CompactionMethod.SUMMARY, made.folded, made.kept, None, made.focus)
    if made.way is CompactionMethod.INPUT and fault.status in COMPACTION_UNSUPPORTED_STATUSES and not here:
        return CompactionPlan(CompactionMethod.SUMMARY, made.folded, made.kept, None, made.focus)
    if made.way is CompactionMethod.PREVIOUS and fault.status in COMPACTION_UNSUPPORTED_STATUSES:
        return CompactionPlan(CompactionMethod.SUMMARY, made.folded, made.kept, None, made.focus)
    return None


class SummaryResult(NamedTuple):
    """A model's summary; `usage` and `notes` as they are in `CompactionOutput`."""

    words: str
    usage: Mapping[str, Json] | None
    notes: tuple[str, ...] = ()


async def _summarize(
    made: CompactionPlan, folded: Sequence[Item], asking: RequestOptions, endpoint: Endpoint, splits: int
) -> SummaryResult:
    """The model's summary of `folded`."""
    request = build_summary_request(folded, focus=made.focus, context=asking.instructions)
    body = {"model": asking.wire_model, "instructions": request.instructions, "input": list(request.items)}
    try:
        return _parse_summary(await collect_response(endpoint, {**body, "store": False}))
    except (EndpointFault, WindowExceeded) as wrong:
        half = _middle_cut_point(folded)
        if not splits or half is None or not _is_window_exceeded(wrong):
            raise
    first = await _summarize(made, folded[:half], asking, endpoint, splits - 1)
    whole = await _summarize(made, (summary_message(first.words), *folded[half:]), asking, endpoint, splits - 1)
    return SummaryResult(
        whole.words, _add_usage(first.usage, whole.usage), tuple(dict.fromkeys(first.notes + whole.notes))
    )


async def collect_response(endpoint: Endpoint, body: Mapping[str, Json]) -> Response:
    """The response to `body`, once it is whole. raises: what the endpoint answers; EndpointFault  it failed"""
    last: Response | None = None
    async with aclosing(endpoint.create(body)) as events:
        async for event in events:
            last = event["response"] if event["type"] in TERMINAL_EVENTS else last
    if last is None:
        raise StreamBroken("the endpoint's stream ended before the answer was whole")
    if last.get("status") == "failed":
        raise make_response_fault(last)
    return last


def _parse_summary(response: Response) -> SummaryResult:
    words = extract_summary(response.get("output") or ())
    if not words:
        raise StreamBroken("the model summed up nothing")
    cut = make_incomplete_error(response)
    notes = (f"the summary was cut short ({cut['code']}): what would stand at its end is missing",) if cut else ()
    return SummaryResult(words, response.get("usage"), notes)


def _is_window_exceeded(wrong: ConvoError) -> bool:
    return isinstance(wrong, WindowExceeded) or (
        isinstance(wrong, RequestRefused) and wrong.code == WindowExceeded.code
    )


def _middle_cut_point(items: Sequence[Item]) -> int | None:
    """The middle one of the places where `items` can be cut."""
    places = [place for place in cut_points(items) if 0 < place < len(items)]
    return places[len(places) // 2] if places else None


def _add_usage(one: Mapping[str, Json] | None, other: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    """The tokens of two calls; their details are left out."""
    if not one or not other:
        return one or other
    return {name: (one.get(name) or 0) + (other.get(name) or 0) for name in ("input_tokens", "output_tokens")}


BRANCH_SUFFIX = "before"


@asynccontextmanager
async def branch_kept_on_success(chat: Chat, link_id: str) -> AsyncIterator[str | None]:
    """The handle by which the history of `chat` goes on as it is now. raises: StoreFault, Conflict

    It is taken back where the block fails, unless the store says that its last link came all the same.
    """
    before = chat.session
    if before.strategy is Strategy.SESSION:
        name, undo = await _branch_session(chat)
    elif before.strategy is Strategy.REPLAY:
        name, undo = _branch_replay_file(chat)
    else:
        yield before.handle
        return
    try:
        yield name
    except BaseException:
        if undo:
            await _remove_unless_committed(chat, link_id, undo)
        raise


RemoveBranch: TypeAlias = Callable[[], Awaitable[None]]


async def _remove_unless_committed(chat: Chat, link_id: str, undo: RemoveBranch) -> None:
    """Carry `undo` out; a store that cannot be asked now keeps what was made."""
    with suppress(ConvoError):
        now = await chat.edges.store.session(chat.session.id)
        if now is None or now.link != link_id:
            await undo()


async def _branch_session(chat: Chat) -> tuple[str, RemoveBranch | None]:
    """The name of a session that stands where this one does; one that was made before stays."""
    store, session = chat.edges.store, chat.session
    wish = f"{session.name}-{BRANCH_SUFFIX}"
    for one in await store.sessions():
        if one.head == session.head and one.name.startswith(wish):
            return one.name, None
    name = await find_free_session_name(store, wish)
    now = await store.session(session.id)
    behind = max(now.use - 1, 0) if now and now.use else 0  # `-c` continues the session, not this one
    twin = replace(session, id=chat.edges.new_id("ses"), name=name, created_at=chat.edges.clock.now(), use=behind)
    await store.commit(Transaction(session=twin, expect=None))

    async def undo() -> None:
        await store.remove_session(twin.id)

    return name, undo


def _branch_replay_file(chat: Chat) -> tuple[str, RemoveBranch | None]:
    """A copy of the replay file beside it; one that was made before stays."""
    stem, suffix = os.path.splitext(chat.session.handle or "")
    content = format_replay_file(chat.held.path.items)
    for place in iter_numbered_paths(f"{stem}-{BRANCH_SUFFIX}{suffix}"):
        if not os.path.lexists(place):
            break
        if _has_content(FilePath(place), content):
            return place, None
    ReplayFile(place).write(chat.held.path.items)

    async def undo() -> None:
        with suppress(OSError):
            os.unlink(place)

    return place, undo


def _has_content(file: FilePath, content: str) -> bool:
    """Whether a file holds just this; a file that cannot be read does not."""
    try:
        return file.stat().st_size == len(content) and file.read_bytes() == content.encode()
    except OSError:
        return False


CONTEXT_MANAGEMENT_HOSTS = ("openai.com", "azure.com")
"""Whose servers know `context_management`, beside convo's own."""

RETRY_GROWTH_FACTOR = 1.1
"""What came to nothing is tried again when the history has grown by a tenth."""


@dataclass(frozen=True, slots=True)
class CompactionDue:
    """How much there is, and the bound that it reached, both in tokens; the window where it is known."""

    tokens: int
    bound: int
    window: int | None

    def __str__(self) -> str:
        part = f", {round(100 * self.tokens / self.window)} % of the window" if self.window else ""
        return f"the history takes {self.tokens:,} tokens{part}"


class AutoCompaction:
    """Sees to one chat; `at` is the setting `compact_at`, `own` are the windows that a person gave."""

    def __init__(self, at: CompactionThreshold, own: Mapping[str, ContextLimits] = NO_WINDOW_SETTINGS) -> None:
        self._at, self._own = at, own
        self._tried = 0.0

    def due(self, chat: Chat) -> CompactionDue | None:
        """Whether it is time. raises: nothing; no item is read"""
        last = chat.record.last
        if last is None or is_compaction_link(last) or _is_just_compacted(chat.held):
            return None
        known = find_model_window(chat.asking.model, self._own)
        window = known.context if known else None
        tokens, bound = (
            tokens_if_over_threshold(self._at, Usage.read(last.usage), window),
            threshold_tokens(self._at, window),
        )
        return CompactionDue(tokens, bound, window) if tokens and bound and tokens >= self._tried else None

    async def shorten(
        self, chat: Chat, reached: CompactionDue, noted: Callable[[str], None]
    ) -> CompactionResult | None:
        """Compact, or have it done; None where nothing stands in place of the history now.

        noted:  told beforehand what is done, and what keeps it from being done
        """
        self._tried = reached.tokens * RETRY_GROWTH_FACTOR
        if chat.session.strategy is Strategy.CONVERSATION:
            noted(f"{reached}; {_request_endpoint_compaction(chat, reached)}")
            return None
        noted(f"{reached}: compacting it first; Ctrl-C leaves it as it is")
        try:
            return await apply_compaction(chat, await prepare_compaction(chat, CompactionOptions()))
        except Interrupted:
            raise
        except ConvoError as wrong:
            noted(f"not compacted: {wrong.message}")
            return None


def is_compaction_link(link: Link) -> bool:
    """Whether a link is a compaction, and nothing was answered by it."""
    return link.parameters.get("context_management") == COMPACTION_PARAMETER


def _is_just_compacted(held: ConversationState) -> bool:
    """Whether nothing was answered since the history was compacted: what it takes now, nobody has said."""
    confirmed = held.path.place(held.mark)
    last = held.path.nodes[confirmed - 1].item if confirmed else None
    return last is not None and (item_type(last) == "compaction" or is_summary(last))


def _request_endpoint_compaction(chat: Chat, reached: CompactionDue) -> str:
    """Ask for it with every request from now on, where that is understood; what is told of it."""
    if not _has_context_management(chat.edges.endpoint.scope):
        return "its endpoint does not compact by itself: convo compact HANDLE --yes goes on with a new conversation"
    wanted = [{"type": "compaction", "compact_threshold": reached.bound}]
    chat.asking = replace(chat.asking, parameters={**chat.asking.parameters, "context_management": wanted})
    return "its endpoint is asked to compact it"


def _has_context_management(scope: Scope) -> bool:
    host = urlsplit(scope.url).hostname or ""
    return scope == EMBEDDED_SCOPE or any(host == one or host.endswith(f".{one}") for one in CONTEXT_MANAGEMENT_HOSTS)
