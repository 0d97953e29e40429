"""Two replicas that keep the histories of recent turns answer and ask as replicas that read every history anew.

Both pairs get the same random requests: turns, retries and forks of two tenants, deletions and prunes. The seeds
are fixed.
"""

import gc
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, aclosing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from convo.chat.endpoint_factory import open_service
from convo.endpoints.base import Endpoint, EndpointService
from convo.errors import ConvoError
from convo.history.items import Item, item_type
from convo.responses_api import history
from convo.runtime import SystemClock
from convo.stores.base import Store
from convo.stores.factory import open_store
from tests import databases
from tests.clock import counting_ids
from tests.config.settings_inputs import make_settings
from tests.endpoints.endpoint_calls import ask
from tests.endpoints.gated_model import endpoint_over, open_gated_model
from tests.hostile_server import run_hostile_server
from tests.sequences.strict_server import Answer, StrictServer

APIS = {"chat": "", "responses": 'owner = "convo"\n', "anthropic": ""}
STEPS = 60

SEEDS = [
    pytest.param(range(3), id="3"),
    *(pytest.param(range(n, n + 20), marks=pytest.mark.full, id=str(n + 20)) for n in range(3, 103, 20)),
]

STORES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda file: f"sqlite:{file}",
    "postgresql": lambda _: databases.cleared_database(),
}


LONG_TEXT = "word " * 20_000


@pytest.mark.parametrize(
    ("first", "second", "store"), [(LONG_TEXT, "again", True), ("hi", LONG_TEXT, False)], ids=["stored", "not stored"]
)
async def test_kept_histories_take_no_more_memory_than_their_limit(
    first: str, second: str, store: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_CACHED_BYTES", 2_000_000)
    models = open_gated_model()
    endpoint = endpoint_over(open_store("memory"), models)
    before = 0
    tracemalloc.start()
    for number in range(60):
        before = tracemalloc.get_traced_memory()[0] if number < 40 else before
        parent = (await ask(endpoint, f"{number} {first}"))["id"]
        await ask(endpoint, f"{number} {second}", previous_response_id=parent, store=store)
        models.requests.clear()
    grown_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert grown_bytes < 500_000, "in 20 turns of 100 KB after the limit was reached"


async def test_a_kept_short_history_has_few_objects_for_the_garbage_collector() -> None:
    models = open_gated_model()
    endpoint = endpoint_over(open_store("memory"), models)
    objects = []
    for _ in range(2):
        for number in range(50):
            await ask(endpoint, f"{number} hi")
        models.requests.clear()
        gc.collect()
        objects.append(len(gc.get_objects()))

    assert objects[1] - objects[0] < 50 * 25, "with more, full collections stop a busy server for a second"


class SteppedClock(SystemClock):
    """A clock that a test advances; `sleep` takes its time, so no sweep of a service changes the time."""

    seconds = 1_700_000_000.0

    def now(self) -> float:
        return self.seconds

    monotonic = now


class World:
    """Replicas of one store, their upstreams, and the ids that they made.

    keeps_histories:  the replicas live as long as the world; else each request has a new one
    """

    def __init__(self, store_url: str, toml: str, *, keeps_histories: bool) -> None:
        self._stores = [open_store(store_url) for _ in range(2)]
        self._settings, self._clock, self._new_id = make_settings(user=toml), SteppedClock(), counting_ids()
        self._keeps_histories = keeps_histories
        self._services = [self._open_service(store) for store in self._stores]
        self._responses: dict[str, list[str]] = {"one": [], "other": []}
        self._conversations: dict[str, list[str]] = {"one": [], "other": []}
        self._open_calls: dict[str, list[Item]] = {}

    def _open_service(self, store: Store) -> EndpointService:
        return open_service(self._settings, store=store, clock=self._clock, new_id=self._new_id)

    async def step(self, random: Random) -> Any:
        """Send one random request and return its response or its error."""
        tenant, replica = random.choice(("one", "one", "other")), random.randrange(2)
        if not self._keeps_histories:
            await self._services[replica].aclose()
            self._services[replica] = self._open_service(self._stores[replica])
        endpoint = self._services[replica].endpoint_for(tenant)
        self._clock.seconds += 10
        kind = random.choices(("turn", "delete", "prune"), (16, 3, 0.5))[0]
        try:
            if kind == "turn":
                return await self._turn(endpoint, tenant, random)
            if kind == "delete":
                return await self._delete(endpoint, tenant, random)
            return await self._stores[replica].admin.prune(tenant, self._clock.now() - 300, dry_run=False)
        except ConvoError as error:
            return type(error), str(error)

    async def _turn(self, endpoint: Endpoint, tenant: str, random: Random) -> Any:
        responses, conversations = self._responses[tenant], self._conversations[tenant]
        body: dict[str, Any] = {"model": f"{random.choice(list(APIS))}/m", "store": random.random() < 0.9}
        if conversations and random.random() < 0.4:
            handle = body["conversation"] = random.choice(conversations[-2:])
        elif responses and random.random() < 0.9:
            handle = body["previous_response_id"] = random.choice((*responses[-2:], *responses[-1:] * 4))
        else:
            created = await endpoint.create_conversation([{"role": "user", "content": "First."}])
            conversations.append(created["id"])
            handle = ""
        calls = self._open_calls.get(handle, []) if random.random() < 0.9 else []
        body["input"] = [
            *({"type": "function_call_output", "call_id": call["call_id"], "output": "done"} for call in calls),
            *random.choices(
                (
                    {"role": "user", "content": f"Say {random.randrange(3)}."},
                    {"role": "developer", "content": "Be brief."},
                    {"type": "item_reference", "id": f"msg_{random.randrange(9)}"},
                ),
                (9, 2, 0.3),
                k=random.randrange(1, 3),
            ),
        ]
        async with aclosing(endpoint.create(body)) as events:
            response = [event async for event in events][-1]["response"]
        if body["store"]:
            responses.append(response["id"])
        open_calls = [item for item in response["output"] if item_type(item) == "function_call"]
        self._open_calls[body.get("conversation") or response["id"]] = open_calls
        return response

    async def _delete(self, endpoint: Endpoint, tenant: str, random: Random) -> Any:
        conversations = self._conversations[tenant]
        if not conversations or random.random() < 0.4:
            return await endpoint.delete(random.choice(self._responses[tenant] or ["resp_none"]))
        conversation = random.choice(conversations[-2:])
        items = (await endpoint.list_conversation_items(conversation, limit=4)).items
        if not items or random.random() < 0.1:
            return await endpoint.delete_conversation(conversation)
        item = random.choice(items)
        await endpoint.delete_conversation_item(conversation, item["id"])
        if random.random() < 0.5:  # the same item again, under another id
            again = {name: value for name, value in item.items() if name not in ("id", "status")}
            return await endpoint.add_conversation_items(conversation, [again])
        return None

    async def aclose(self) -> None:
        for service, store in zip(self._services, self._stores, strict=True):
            await service.aclose()
            await store.aclose()


class Upstreams:
    """A strict server of each API; `requests` are the bodies that they received."""

    def __init__(self, stack: ExitStack) -> None:
        self.toml = ""
        self.reset()
        for api, settings in APIS.items():
            listener = stack.enter_context(run_hostile_server(partial(self._answer, api)))
            base_url = listener.url.removesuffix("/v1") if api == "anthropic" else listener.url
            self.toml += f'[providers.{api}]\napi = "{api}"\nbase_url = "{base_url}"\nkey_env = "UP_KEY"\n{settings}'

    def reset(self) -> None:
        """Forget what was received, and begin with new ids."""
        self.requests: list[str] = []
        self._servers = {api: StrictServer(api) for api in APIS}

    def prepare_answer(self, random: Random) -> None:
        """Prepare the answer to the next request."""
        answer = Answer(
            random.choice(("Yes.", "No.", "é")),
            reasoning=random.choice(("", "Hm.")),
            calls=tuple((f"c{random.randrange(3)}", "look", "{}") for _ in range(random.choice((0, 0, 0, 1, 2)))),
            end=random.choice(("complete",) * 6 + ("length",)),
            sent_part=random.choice((1.0,) * 8 + (0.7,)),
        )
        for server in self._servers.values():
            server.answers.clear()
            server.answers.append(answer)

    def _answer(self, api: str, request: str) -> Iterator[bytes]:
        self.requests.append(request)
        return self._servers[api](request)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    ("kind", "max_bytes"),
    [
        pytest.param("sqlite", 20_000),
        pytest.param("postgresql", history.MAX_CACHED_BYTES, marks=pytest.mark.needs("postgresql")),
        pytest.param("sqlite", history.MAX_CACHED_BYTES, marks=pytest.mark.full),
        pytest.param("postgresql", 20_000, marks=[pytest.mark.needs("postgresql"), pytest.mark.full]),
    ],
)
async def test_replicas_that_keep_histories_answer_and_ask_as_those_that_read_them(
    kind: str, max_bytes: int, seeds: Iterable[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UP_KEY", "test-key")
    monkeypatch.setattr(history, "MAX_CACHED_BYTES", max_bytes)
    with ExitStack() as stack:
        upstreams = Upstreams(stack)
        for seed in seeds:
            kept, read = [
                await run_steps(
                    Random(seed), upstreams, STORES[kind](tmp_path / f"{seed} {keeps}"), keeps_histories=keeps
                )
                for keeps in (True, False)
            ]
            for step, outcomes in enumerate(zip(kept, read, strict=True)):
                assert outcomes[0] == outcomes[1], f"seed {seed}, step {step}"


async def run_steps(random: Random, upstreams: Upstreams, store_url: str, *, keeps_histories: bool) -> list[Any]:
    """Return the outcome of each step, with the requests that the upstreams received."""
    upstreams.reset()
    world = World(store_url, upstreams.toml, keeps_histories=keeps_histories)
    outcomes = []
    for _ in range(STEPS):
        upstreams.prepare_answer(random)
        outcome = await world.step(random)
        outcomes.append((outcome, upstreams.requests[:]))
        upstreams.requests.clear()
    await world.aclose()
    return outcomes
