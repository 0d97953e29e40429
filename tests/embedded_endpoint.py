"""The embedded endpoint over a store, with the scripted model as its only model."""

from convo.models.base import Model
from convo.models.scripted import ScriptedModel
from convo.responses_api.deps import EndpointOptions
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import Clock, NewId, random_id
from convo.stores.base import Store
from tests.clock import FixedClock


class ScriptedOnly:
    """A model factory that always returns the scripted model."""

    def __init__(self, clock: Clock, new_id: NewId) -> None:
        self._model = ScriptedModel(clock, new_id)

    def __call__(self, name: str) -> tuple[Model, str]:
        return self._model, name.removeprefix("scripted/")

    async def aclose(self) -> None:
        await self._model.aclose()


def make_embedded_endpoint(
    store: Store, clock: Clock | None = None, new_id: NewId = random_id, *, options: EndpointOptions | None = None
) -> EmbeddedEndpoint:
    """Return an endpoint; its clock is a `FixedClock` unless `clock` is given."""
    clock = clock or FixedClock()
    return EmbeddedEndpoint(store, ScriptedOnly(clock, new_id), clock, new_id, options=options or EndpointOptions())
