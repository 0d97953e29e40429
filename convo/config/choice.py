"""The model of the next turn: what is named, held to its session's record, ready to be asked."""

from convo.config.binding import Record, bind
from convo.config.names import Choice, named
from convo.config.providers import NEEDS_NO_URL, Provider
from convo.config.settings import Settings
from convo.errors import BadSettings


def choose(
    settings: Settings, written: str | None = None, *, where: str = "-m", record: Record | None = None
) -> Choice:
    """The model that `written` names, or the one that the settings name.

    where:   where `written` was said: "-m", "/model"
    record:  of the session that is gone on with, when its owner is an endpoint
    raises:  BadSettings  an unknown provider, aliases in a circle, no model behind the slash,
                          or a provider that lacks its base URL
             WrongOwner   `record` is held elsewhere, as `bind` says
    """
    choice = named(settings, written, where)
    if record is not None:
        choice = bind(settings, choice, record)
    provider = choice.provider
    if provider.base_url is None and provider.api not in NEEDS_NO_URL:
        raise BadSettings(f"the provider {provider.name!r} has no base URL", hint=_where_to_set(provider))
    return choice


def _where_to_set(provider: Provider) -> str:
    variable = "set AZURE_OPENAI_ENDPOINT, or " if provider.name == "azure" else ""
    return f"{variable}set base_url under [providers.{provider.name}]"
