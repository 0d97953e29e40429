"""convo: choose where conversation state lives, and see exactly what the next request will send."""

__version__ = "0.1.0"
