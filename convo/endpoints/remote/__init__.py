"""Responses and Conversations at a server, through the openai package.

`answer` reads the events of one response and believes nothing that the server does not say,
`endpoint` is the contract's methods, `connection` a chain that nobody keeps; who asks where is an
account of `convo.models.account`. The openai package loads on first use.
"""

from convo.endpoints.remote.endpoint import Remote
from convo.models.account import Account

__all__ = ["Account", "Remote"]
