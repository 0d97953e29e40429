"""Where the key is that states are signed with: a variable, or the keyring of whoever is logged in.

The variable wins, so a script needs no keyring, and a keyring is only asked for what no variable
says. A key is never an argument: those can be read by everybody on the machine.
"""

import os

from convo.config.keys import has_keyring, in_keyring
from convo.errors import BadSettings, Usage


def signing_key(name: str) -> bytes:
    """The key that is called `name`.

    raises:  Usage        neither a variable nor a keyring has it
             BadSettings  the keyring does not give it out
    """
    key = os.environ.get(name) or _kept(name)
    if not key:
        raise Usage(f"no variable and no keyring has a key {name}", hint=f"export {name}=$(openssl rand -hex 32)")
    return key.encode("utf-8", "surrogateescape")


def _kept(name: str) -> str:
    try:
        key = in_keyring(name) if has_keyring() else None
    except BadSettings as wrong:
        wrong.hint = f"{wrong.hint}, or set {name}"
        raise
    return key.reveal() if key else ""
