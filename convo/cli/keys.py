"""Where the key is that states are signed with: a variable, or the keyring of whoever is logged in.

The variable wins, so a script needs no keyring, and a keyring is only asked for what no variable
says. Its package is an extra and loads on first use. A key is never an argument: those can be read by
everybody on the machine.
"""

import os

from convo.errors import Usage

SERVICE = "convo"
"""Under which service a keyring has our keys; the name of the variable is the account."""


def signing_key(name: str) -> bytes:
    """The key that is called `name`. raises: Usage  neither a variable nor a keyring has it"""
    key = os.environ.get(name) or _in_keyring(name)
    if not key:
        raise Usage(f"no variable and no keyring has a key {name}", hint=f"export {name}=$(openssl rand -hex 32)")
    return key.encode("utf-8", "surrogateescape")


def _in_keyring(name: str) -> str | None:
    try:
        from keyring import get_password
        from keyring.errors import KeyringError, NoKeyringError
    except ImportError:
        return None
    try:
        return get_password(SERVICE, name)
    except NoKeyringError:
        return None
    except KeyringError as wrong:
        raise Usage(
            f"the keyring does not give out the key {name}: {wrong}", hint=f"unlock it, or set {name}"
        ) from wrong
