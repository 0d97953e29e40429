"""convo: who owns the state of a conversation, and what exactly will the next request contain?"""

__version__ = "0.1.0"
