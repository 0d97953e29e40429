"""The next request of a conversation whose answers come from agents.

Instructions, tools, settings and input filter of the agent are applied, so the user's functions are called as
in a turn. No tool runs. The conversation is opened without a write lease and nothing is stored.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from convo.agent_runner.config import ModelRoute
from convo.agent_runner.prepare import PreparedRequest
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import CustomModel
from convo.chat.conversation import Chat
from convo.chat.next_request import find_current_link
from convo.chat.session_record import ChatDeps, SessionRecord, load_last_link
from convo.chat.turn import RequestOptions
from convo.cli.agent_options import AgentSetup
from convo.cli.deps import make_request_options, open_chosen_endpoint, print_ignored_settings
from convo.config.loader import AGENT_MODEL_SOURCE, choose_model
from convo.config.settings import Settings
from convo.endpoints.base import Endpoint
from convo.history.items import Item
from convo.history.records import Session
from convo.inspect.view import ConversationView
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from convo.strategies.strategy import ConversationState


@dataclass(frozen=True, slots=True)
class AgentRequestPreview:
    """Previews the next request of agents, and opens the endpoints of their own models."""

    agent_setup: AgentSetup
    settings: Settings
    store: Store
    exit_stack: AsyncExitStack

    async def preview_request(
        self,
        view: ConversationView,
        state: ConversationState,
        items: Sequence[Item],
        options: RequestOptions,
        endpoint: Endpoint,
        *,
        same_model: bool,
    ) -> PreparedRequest:
        """Return the next request of the agents.

        state:       what it continues
        same_model:  all agents use one model, because the user named it

        Raises the errors of `AgentRunner.open` and `AgentRunner.preview_request`, and ItemDeleted.
        """
        deps = ChatDeps(self.store, endpoint, SystemClock(), random_id)
        setup = await self.agent_setup.connect(self.settings, self.exit_stack)
        setup = setup.without_agent_models() if same_model else setup.with_route(self._open_route)
        runner = await AgentRunner.open(
            await _open_read_only_chat(view, state, options, deps), setup.graph, setup.run_config
        )
        return await runner.preview_request(items)

    def _open_route(self, model: str | CustomModel) -> ModelRoute:
        if not isinstance(model, str):
            from convo.chat.endpoint_factory import open_custom_endpoint

            endpoint = open_custom_endpoint(model, self.settings, self.store)
            self.exit_stack.push_async_callback(endpoint.aclose)
            return ModelRoute(RequestOptions(model.name, model.name), endpoint)
        choice = choose_model(self.settings, model, source=AGENT_MODEL_SOURCE)
        endpoint = open_chosen_endpoint(choice, self.settings, self.store)
        self.exit_stack.push_async_callback(endpoint.aclose)
        options = make_request_options(choice, self.settings, instructions=None, parameters={})
        print_ignored_settings(options)
        return ModelRoute(options, endpoint)


async def _open_read_only_chat(
    view: ConversationView, state: ConversationState, options: RequestOptions, deps: ChatDeps
) -> Chat:
    """Open the conversation as its owner would continue it, with or without a record."""
    path, scope = state.path, deps.endpoint.scope
    new_session = Session(
        "", view.handle, state.strategy, options.model, path.head, state.confirmed_head, 0.0, 0.0, scope
    )
    handle = state.handle if state.is_server_side else None  # without its file, a replay is neither read nor written
    session = replace(view.session or new_session, handle=handle)
    last_link = await load_last_link(deps.store, view.session) if view.session else find_current_link(view)
    record = SessionRecord(session, path, last_link, deps, is_saved=bool(view.session))
    record.state = state
    return Chat(record, options, deps)
