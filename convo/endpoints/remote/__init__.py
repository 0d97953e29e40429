"""Responses and Conversations at a server, through the openai package.

`account` is who asks where, `answer` reads the events of one response and believes nothing that
the server does not say, `endpoint` is the contract's methods. The package loads on first use.
"""

from convo.endpoints.remote.account import Account
from convo.endpoints.remote.endpoint import Remote

__all__ = ["Account", "Remote"]
