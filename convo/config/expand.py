"""Variables inside a value: `$NAME` and `${NAME}` stand for what the environment holds.

Only a connection string is read this way. What comes out of a variable is not read again, so a
password may hold any sign; `$$` is one dollar, and a dollar before anything else is itself.
"""

import re
from collections.abc import Mapping

from convo.config.checks import Unfit

DOLLAR = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<bare>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\}|(?P<broken>\{))", re.ASCII
)


def expand(written: str, environ: Mapping[str, str]) -> str:
    """`written` with every variable replaced, from left to right, once.

    raises:  Unfit  a variable is not set, or a brace has no name or no end
    """

    def value(found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        if found["broken"]:
            raise Unfit("has a '${' without a variable's name and '}' behind it")
        name = found["bare"] or found["braced"]
        if name not in environ:
            raise Unfit(f"names the variable {name}, which is not set", hint=f"export {name}=...")
        return environ[name]

    return DOLLAR.sub(value, written)
