"""Ids of responses, conversations and items, as an endpoint gives them and a client sends them back.

An id becomes part of a URL, of a request body and of a line in a terminal. So it holds no slash, no space, no
control character and nothing outside of ASCII.
"""

import re

LONGEST_ID = 512
"""Characters; the longest ids that gateways are known to give have about 300."""

ID = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.:=+~@$-]{1,512}", re.ASCII)


def is_id(value: object) -> bool:
    """Whether `value` is a well-formed id."""
    return isinstance(value, str) and ID.fullmatch(value) is not None
