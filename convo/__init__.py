"""convo: choose where conversation state lives, and see exactly what the next request will send.

The names of `__all__` are the Python API; each is imported with its first use. Their types are in `__init__.pyi`.
"""

__version__ = "0.2.0"

_MODULES = {
    "Agent": "convo.agents",
    "ConvoError": "convo.errors",
    "ConvoSession": "convo.api.sessions",
    "Guardrail": "convo.agents",
    "Handoff": "convo.agents",
    "RunState": "convo.api.states",
    "asgi_app": "convo.api.gateway",
    "handoff_history_mapper": "convo.agents.handoff_history",
    "open_store": "convo.api.sessions",
    "tool": "convo.tools",
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # it has imports of its own, and `import convo` begins every command

    return getattr(import_module(_MODULES[name]), name)
