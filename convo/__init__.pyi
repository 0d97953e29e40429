from convo.agents import Agent as Agent
from convo.agents import Guardrail as Guardrail
from convo.agents import Handoff as Handoff
from convo.agents.handoff_history import handoff_history_mapper as handoff_history_mapper
from convo.api.gateway import asgi_app as asgi_app
from convo.api.sessions import ConvoSession as ConvoSession
from convo.api.sessions import open_store as open_store
from convo.api.states import RunState as RunState
from convo.errors import ConvoError as ConvoError
from convo.tools import tool as tool

__all__: list[str]
__version__: str
