"""Hands to the line editor what could be completed; what that is, `convo.ui.completing` says."""

from collections.abc import AsyncGenerator, Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from convo.errors import ConvoError
from convo.ui.completing import Suggest


class Completing(Completer):
    """Completes by `suggest`, which may have to look into the store."""

    def __init__(self, suggest: Suggest) -> None:
        self._suggest = suggest

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        try:
            length, offers = await self._suggest(document.text_before_cursor)
        except ConvoError:  # a store that cannot be read completes nothing
            return
        for offer in offers:
            yield Completion(offer.word, start_position=-length, display_meta=offer.about)
