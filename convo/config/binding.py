"""A record and the settings of today, about the same handle.

A `resp_...` or `conv_...` means something at one endpoint only: one URL, organisation and project.
The session's record knows which. What a file says today loses against it without a word; what was
said for this run, by a flag or a variable, is refused when it says something else, because the
person who said it expects it to be followed.

Only owners at an endpoint bind. A replay file or a local session may go to any model at any time.
"""

from collections.abc import Iterator
from shlex import quote
from typing import NamedTuple

from convo.config.names import Choice
from convo.config.origin import Layer, Origin
from convo.config.providers import OWNS_STATE, Provider
from convo.config.settings import Settings
from convo.errors import WrongOwner


class Record(NamedTuple):
    """What a session's record says of its model and endpoint.

    session:  its name
    model:    "provider/model" of the last turn
    url:      the base URL, or "embedded" for convo's own endpoint over this store
    """

    session: str
    model: str
    url: str = "embedded"
    organisation: str | None = None
    project: str | None = None

    @property
    def origin(self) -> Origin:
        return Origin(Layer.RECORD, f"session {self.session!r}")


class Whereabouts(NamedTuple):
    """Where a handle means something, in plain words."""

    url: str
    organisation: str | None = None
    project: str | None = None

    def __str__(self) -> str:
        if self.url == "embedded":
            return "convo's own endpoint"
        more = [part for part in (self.organisation, self.project) if part]
        return self.url + (f" ({', '.join(more)})" if more else "")


def whereabouts(provider: Provider) -> Whereabouts:
    """Where the handles of this provider's models mean something."""
    if provider.endpoint == "embedded":
        return Whereabouts("embedded")
    return Whereabouts(provider.base_url or "", provider.organisation, provider.project)


def bind(settings: Settings, choice: Choice, record: Record) -> Choice:
    """`choice` at the endpoint that the record names.

    raises:  WrongOwner  a flag or variable names another endpoint, or the provider cannot be
                         reached there any more
    """
    held = Whereabouts(record.url.rstrip("/"), record.organisation, record.project)
    said = whereabouts(choice.provider)
    if said == held:
        return choice
    for origin in _to_blame(settings, choice, record, held):
        if origin.insists:
            raise _contradiction(record, held, said, choice, origin)
    provider = _moved(choice.provider, held)
    if whereabouts(provider) != held:
        raise _contradiction(record, held, said, choice, settings.origin("providers", choice.provider.name, "api"))
    return choice._replace(provider=provider)


def _to_blame(settings: Settings, choice: Choice, record: Record, held: Whereabouts) -> Iterator[Origin]:
    """Who said what differs."""
    said, name = whereabouts(choice.provider), choice.provider.name
    if name != record.model.partition("/")[0]:
        yield choice.origin
    if "embedded" in (said.url, held.url):
        return
    if said.url != held.url:
        yield settings.origin("providers", name, "base_url")
    if said.organisation != held.organisation:
        yield settings.origin("providers", name, "organisation")
    if said.project != held.project:
        yield settings.origin("providers", name, "project")


def _moved(provider: Provider, held: Whereabouts) -> Provider:
    """`provider` where the record has it, as far as its `api` can go there."""
    if provider.api not in OWNS_STATE:
        return provider
    if held.url == "embedded":
        return provider._replace(owner="convo")
    moved = provider._replace(owner="provider", base_url=held.url)
    return moved._replace(organisation=held.organisation, project=held.project)


def _contradiction(record: Record, held: Whereabouts, said: Whereabouts, choice: Choice, origin: Origin) -> WrongOwner:
    instead = f"convo convert {quote(record.session)} --to session"
    return WrongOwner(
        f"session {record.session!r} is held by {held}, but {origin.place} says {said} for {choice.name}",
        hint=f"{'leave it out' if origin.insists else 'change it there'}, or {instead}",
    )
