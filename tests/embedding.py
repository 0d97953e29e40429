"""Convo's own endpoint over a store, with the scripted model as the only one."""

from convo.clock import Clock, FixedClock
from convo.endpoints.embedded import Embedded
from convo.endpoints.embedded.edges import Manner
from convo.ids import NewId, random_id
from convo.models.contract import Model
from convo.models.scripted import ScriptedModel
from convo.stores.contract import Store


class Scripted:
    """Opens "scripted/..." and nothing else."""

    def __init__(self, clock: Clock, new_id: NewId) -> None:
        self._model = ScriptedModel(clock, new_id)

    def __call__(self, name: str) -> tuple[Model, str]:
        return self._model, name.removeprefix("scripted/")

    async def aclose(self) -> None:
        await self._model.aclose()


def embedded(
    store: Store, clock: Clock | None = None, new_id: NewId = random_id, *, manner: Manner | None = None
) -> Embedded:
    """An endpoint whose time stands still unless another clock is given."""
    clock = clock or FixedClock()
    return Embedded(store, Scripted(clock, new_id), clock, new_id, manner=manner or Manner())
