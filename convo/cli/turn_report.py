"""The report of one turn of `convo chat --json`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from convo.chat.conversation import Chat
from convo.config.sections import Price
from convo.history.items import Item, Json, item_text, item_type
from convo.history.records import Link, Strategy
from convo.inspect.view import link_cost_usd
from convo.prompt_cache.forecast import PrefixForecast
from convo.report import OPTIONAL, Keywords


class TurnReport(NamedTuple):
    """One turn of a model.

    response_id:      id of the response; null if there is none
    session:          name of the session in the local store
    strategy:         the owner of the state
    conversation_id:  with --conversation: id of the conversation
    model:            provider/model
    output_text:      the output as plain text
    output:           the output items, of the Responses API, unchanged
    usage:            tokens as reported by the endpoint; null if it reported none
    cost_usd:         null if the usage or the price is unknown
    status:           status of the response: completed, incomplete, failed or cancelled
    pending:          always empty: only agent runs have pending calls
    state_file:       with --replay: file with the conversation
    prefix:           what the request lost because it changed the prefix of the one before; null if it only appended
    wrong_forecast:   how the reasoning that the provider removed differs from `prefix`; null if it does not
    """

    response_id: str | None
    session: str
    strategy: Strategy
    conversation_id: str | None
    model: str
    output_text: str
    output: Sequence[Item]
    usage: Mapping[str, Json] | None
    cost_usd: Annotated[float | None, OPTIONAL]
    status: str
    pending: Annotated[Sequence[Json], Keywords(maxItems=0)]
    state_file: str | None
    prefix: Annotated[PrefixForecast | None, OPTIONAL]
    wrong_forecast: Annotated[str | None, OPTIONAL]


def build_turn_report(chat: Chat, link: Link, prices: Mapping[str, Price]) -> TurnReport:
    """Build the report of the last turn, whose link is `link`."""
    session, output = chat.session, _get_answer_items(chat, link)
    return TurnReport(
        None if link.id.startswith("try_") else link.id,
        session.name,
        session.strategy,
        session.conversation_id,
        chat.options.model,
        "".join(item_text(item) for item in output if item_type(item) == "message"),
        output,
        link.usage,
        link_cost_usd(link, prices),
        link.status,
        [],
        session.replay_file,
        chat.turn.prefix if chat.turn else None,
        chat.turn.wrong_forecast if chat.turn else None,
    )


def _get_answer_items(chat: Chat, link: Link) -> list[Item]:
    """Return the items of the answer: those of the response, or those received before it was stopped."""
    response = chat.turn.response if chat.turn else None
    if response:
        return list(response.get("output") or ())
    return [node.item for node in chat.state.path.after(link.input_head)]
