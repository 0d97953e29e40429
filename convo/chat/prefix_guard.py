"""The prefix guard: before a request that changes the prefix, warn what it loses, or refuse it.

It checks all requests of a chat, those of agent runs included. Nearly all only append: for these it compares a few
fields with those of the last link. Only for others it reads the branch and imports the modules that compare.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from convo.config.sections import Price
from convo.errors import NotFound, PrefixChanged
from convo.history.records import REMOVED_FIELD, Link, Scope, client_parameters, is_compaction_link
from convo.history.tree import Path
from convo.stores.base import Store

if TYPE_CHECKING:
    from convo.inspect.view import ConversationView
    from convo.prompt_cache.forecast import PrefixForecast


def find_wrong_forecast(view: "ConversationView") -> str | None:
    """Describe how the removed reasoning that a provider reported for the request of `view` differs from the forecast.

    Returns None if it does not, or if the provider reported nothing.
    """
    from convo.inspect.tree import find_branch_links

    links = find_branch_links(view)
    if not links or REMOVED_FIELD not in links[-1].reported or links[-1].input_head not in view.path_index:
        return None
    from convo.prompt_cache.forecast import describe_wrong_forecast

    return describe_wrong_forecast(links, view.path_index)


class PrefixGuard(NamedTuple):
    """The settings of the guard.

    prices:     the user's own, by full name of the model
    is_strict:  refuse a request that changes the prefix and loses something
    is_keeping: what can be appended was (`convo.strategies.kept_prefix`): a change that is left cannot be appended
    has_hint:   say what to append instead; a user cannot append the tools and instructions of the next agent
    """

    prices: Mapping[str, Price]
    is_strict: bool = False
    is_keeping: bool = False
    has_hint: bool = True

    async def forecast_turn(
        self, store: Store, previous: Link | None, planned: Link, path: Path
    ) -> "PrefixForecast | None":
        """Return what a request loses; None if it only appends, or follows a compaction, which the user chose.

        previous:  the last answered link
        planned:   the link of the request, whose input is `path`
        Raises PrefixChanged if the guard is strict.
        """
        if (
            previous is None
            or is_compaction_link(previous)
            or (
                (previous.model, previous.scope) == (planned.model, planned.scope)
                and path.contains(previous.head)
                and client_parameters(previous.parameters) == planned.parameters
            )
        ):
            return None
        from convo.chat.view_loader import load_response_view

        with suppress(NotFound):
            view = await load_response_view(store, previous.id, is_branch_only=True)
            return self.forecast_next(view, planned, path)
        return None

    def forecast_next(self, view: "ConversationView", planned: Link, path: Path) -> "PrefixForecast | None":
        """Return what a request that continues `view` loses; arguments and errors as in `forecast_turn`."""
        from convo.inspect.tree import find_branch_links
        from convo.prompt_cache.forecast import forecast_prefix

        view.path_index.add(path)
        forecast = forecast_prefix(find_branch_links(view), planned, view.path_index, self.prices)
        if forecast is not None and self.is_keeping and forecast.change.item_index is None:
            place = f"on {planned.model}" if self.has_hint else "between agents"
            reason = f"--keep-prefix cannot append this change of {forecast.change.name} {place}"
            forecast = forecast._replace(append_instead=None, not_kept=reason)
        elif forecast is not None and not self.has_hint:
            forecast = forecast._replace(append_instead=None)
        if self.is_strict and forecast is not None and forecast.has_loss:
            raise PrefixChanged(str(forecast))
        return forecast

    def forecast_history(
        self,
        view: "ConversationView",
        path: Path,
        planned_at: float,
        *,
        model: str | None = None,
        scope: Scope | None = None,
    ) -> "PrefixForecast | None":
        """Return what the next request loses if the history becomes `path`; it is not refused: the user chose this.

        planned_at:    seconds since 1970
        model, scope:  of the next request; None: those of the last one
        """
        from convo.inspect.tree import find_branch_links

        previous = next(reversed(find_branch_links(view)), None)
        if previous is None or is_compaction_link(previous):
            return None
        planned = replace(previous, input_head=path.head, head=path.head, created_at=planned_at)
        planned = replace(planned, model=model or planned.model, scope=scope or planned.scope)
        return self._replace(is_strict=False).forecast_next(view, planned, path)
