"""Fixtures that start gateways."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.gateway import RunningGateway, run_gateway

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Serve = Callable[..., RunningGateway]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return a function that starts a gateway: `serve(max_depth=20)` sets limits."""
    with ExitStack() as stack:

        def start(store_url: str = "memory", **more: Any) -> RunningGateway:
            return stack.enter_context(run_gateway(tmp_path / "served", store_url, **more))

        yield start


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway over the memory store for all tests of a module that leave no state in it."""
    with run_gateway(tmp_path_factory.mktemp("shared")) as gateway:
        yield gateway


@pytest.fixture
def gateway(serve: Serve) -> RunningGateway:
    """A gateway over the memory store, with the default limits."""
    return serve()


@pytest.fixture(params=["sqlite", pytest.param("memory", marks=pytest.mark.full)])
def stored_gateway(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> RunningGateway:
    """A gateway over SQLite, and in long runs also over the memory store."""
    return serve("memory" if request.param == "memory" else f"sqlite:{tmp_path / 'convo.db'}")


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """One browser for a module. While it runs, `asyncio.run` fails in the thread of the tests."""
    from tests.server.browser import chromium

    with chromium() as running:
        yield running


@pytest.fixture
def page(browser: "Browser") -> "Iterator[Page]":
    """An empty page, which is checked at the end of the test; a module may open an address in it."""
    from tests.server.browser import open_page

    with open_page(browser) as opened:
        yield opened
