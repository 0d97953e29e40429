"""The inspector page: its files as a server gives them out, and as one file that needs no server.

The page is plain HTML, CSS and JavaScript modules, in `static` beside this file, and nothing is built:
a server hands out what stands there. The one file holds the same script and the same style, and the
conversations as data that a browser does not run. Either way a policy forbids whatever is not the
page's own script, and any way of making markup out of words.
"""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from convo.inspection.document import harmless
from convo.items import Json

MODULES = (
    *("make.js", "paged.js", "conversation.js", "items.js", "difference.js", "link.js"),
    *("list.js", "tree.js", "source.js", "inspector.js"),
)
"""The page's script, each module behind those that it imports."""

STYLE, PAGE = "inspector.css", "index.html"

AT = "/inspector/"
"""Where a server has the files of the page."""

FORMS = {"js": b"text/javascript", "css": b"text/css", "html": b"text/html"}

NOTHING_ELSE = (
    "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'; "
)
SERVED_POLICY = f"{NOTHING_ELSE}script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"
"""Images stand in the items themselves. What is not named here is not loaded, run, sent or shown in a frame."""

LINKED = f'<link rel="stylesheet" href="{AT[1:]}{STYLE}">'
LOADED = f'<script type="module" src="{AT[1:]}inspector.js"></script>'
"""How the page names its files: beside itself, so that it may stand below another address than /."""

IMPORT = re.compile(r"^import .*;\n", re.MULTILINE)
EXPORT = re.compile(r"^export ", re.MULTILINE)


class File(NamedTuple):
    """One file of the page."""

    body: bytes
    form: bytes


@cache
def served() -> dict[str, File]:
    """The files of the page by name; the page itself under ""."""
    named = {"": PAGE, **{name: name for name in (*MODULES, STYLE)}}
    return {
        at: File(text(name).encode(), FORMS[name.rpartition(".")[2]] + b"; charset=utf-8") for at, name in named.items()
    }


def whole(data: Json) -> str:
    """The page as one file that shows `data`: {"list": ..., "conversations": {handle: ...}}."""
    script, style = one_script(), text(STYLE)
    policy = f"{NOTHING_ELSE}script-src {hash_of(script)}; style-src {hash_of(style)}"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>'
    kept = f'<script type="application/json" id="convo-data">{harmless(data)}</script>'
    page = text(PAGE).replace(LINKED, head)
    return page.replace(LOADED, f'{kept}\n<script type="module">{script}</script>')


def one_script() -> str:
    """All modules as one: what one exports and another imports is then simply there."""
    return "\n".join(EXPORT.sub("", IMPORT.sub("", text(name))) for name in MODULES)


def hash_of(inline: str) -> str:
    """How a policy names a script or a style that stands in the page."""
    return f"'sha256-{b64encode(sha256(inline.encode()).digest()).decode()}'"


@cache
def text(name: str) -> str:
    return (Path(__file__).parent / "static" / name).read_text("utf-8")
