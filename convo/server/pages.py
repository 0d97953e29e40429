"""Static HTML pages: the inspector, and an exported conversation.

An exported page is a single file that needs no network: text is escaped, and a content security policy forbids
everything else. The inspector's modules and style are in `static`. The served page loads two scripts: the module that
requests the first rows, and all others joined. The data of an exported page is embedded as JSON, so that `convo import`
can read it.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import NamedTuple

from convo.history.items import Item, Json, is_assistant_message, is_summary, is_user_message
from convo.inspect.serialize import (
    PAGE_BEGIN,
    PAGE_END,
    ConversationDocument,
    TranscriptEntry,
    document_to_embedded_json,
    dump_html_safe_json,
    entry_title,
    item_passages,
    replace_unprintable,
)

FIRST_SCRIPT_FILE = "source.js"
"""The module that requests the first rows; the served page runs it before the other modules are loaded."""

SCRIPT_FILES = (
    *(FIRST_SCRIPT_FILE, "make.js", "paged.js", "conversation.js", "json.js", "requests.js", "charts.js"),
    *("markdown.js", "items.js", "list.js", "approvals.js", "difference.js", "code.js", "compaction.js", "export.js"),
    *("fork.js", "link.js", "detail.js", "keys.js", "tree.js", "usage.js", "runs.js", "start.js", "inspector.js"),
)
"""The page's scripts, each module after those that it imports."""

STYLE_FILE, PAGE_FILE = "inspector.css", "index.html"

JOINED_SCRIPTS = "page.js"
"""All modules but the first as a single script: one request instead of one for each module."""

INSPECTOR_FILES_PATH = "/inspector/"
"""The server's path of the page's files."""

CONTENT_TYPES = {"js": b"text/javascript", "css": b"text/css", "": b"text/html"}

BASE_POLICY = (
    "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'; "
)
SERVED_POLICY = f"{BASE_POLICY}script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"
"""Images are embedded in the items. Everything not named here is not loaded, run, sent or framed."""

STYLE_LINK = f'<link rel="stylesheet" href="{INSPECTOR_FILES_PATH[1:]}{STYLE_FILE}">'
SCRIPT_TAG = f'<script type="module" src="{INSPECTOR_FILES_PATH[1:]}inspector.js"></script>'
"""References of the page to its files: relative, so that the page also works below another path than /."""

SERVED_SCRIPT_TAGS = (
    f'<script type="module" async fetchpriority="high" src="{INSPECTOR_FILES_PATH[1:]}{FIRST_SCRIPT_FILE}"></script>',
    f'<script type="module" src="{INSPECTOR_FILES_PATH[1:]}{JOINED_SCRIPTS}"></script>',
)
"""The scripts of the served page, before and after its style."""

SCRIPT_IMPORT = re.compile(r"^import .*;\n", re.MULTILINE)
SCRIPT_EXPORT = re.compile(r"^export ", re.MULTILINE)


class PageFile(NamedTuple):
    """One file of the page."""

    body: bytes
    content_type: bytes


@cache
def load_page_files() -> dict[str, PageFile]:
    """Load the files of the page by name; the page itself is under ""."""
    texts = {name: _read_static_text(name) for name in (*SCRIPT_FILES, STYLE_FILE)}
    first_tag, joined_tag = SERVED_SCRIPT_TAGS
    page = _read_static_text(PAGE_FILE).replace(STYLE_LINK, f"{first_tag}\n{STYLE_LINK}")
    texts |= {"": page.replace(SCRIPT_TAG, joined_tag), JOINED_SCRIPTS: _join_served_scripts()}
    return {
        name: PageFile(text.encode(), CONTENT_TYPES[name.rpartition(".")[2]] + b"; charset=utf-8")
        for name, text in texts.items()
    }


def _join_served_scripts() -> str:
    """Join all modules but the first, with one import of it."""
    others = [name for name in SCRIPT_FILES if name != FIRST_SCRIPT_FILE]
    imports = [line for name in others for line in SCRIPT_IMPORT.findall(_read_static_text(name))]
    (imported,) = [line for line in imports if f'"./{FIRST_SCRIPT_FILE}"' in line]
    return str(imported) + _bundle_scripts(others)


def render_inspector_page(data: Json) -> str:
    """Render a single-file page that shows `data`: {"list": ..., "conversations": {handle: ...}}."""
    script, style = _bundle_scripts(SCRIPT_FILES), _read_static_text(STYLE_FILE)
    policy = f"{BASE_POLICY}script-src {_format_policy_hash(script)}; style-src {_format_policy_hash(style)}"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>'
    data_script = f'<script type="application/json" id="convo-data">{dump_html_safe_json(data)}</script>'
    page = _read_static_text(PAGE_FILE).replace(STYLE_LINK, head)
    return page.replace(SCRIPT_TAG, f'{data_script}\n<script type="module">{script}</script>')


def _bundle_scripts(names: Iterable[str]) -> str:
    """Join modules into one script, without imports and exports: they share one scope."""
    return "\n".join(SCRIPT_EXPORT.sub("", SCRIPT_IMPORT.sub("", _read_static_text(name))) for name in names)


def _format_policy_hash(source: str) -> str:
    """Format the policy source of an inline script or style."""
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"


@cache
def _read_static_text(name: str) -> str:
    return (Path(__file__).parent / "static" / name).read_text("utf-8")


CONVERSATION_PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)

INLINE_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
"""Images that are safe to show; an SVG may contain scripts."""

CONVERSATION_PAGE_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --dim: #595959; }
@media (prefers-color-scheme: dark) { :root { --dim: #b4b4b4; } }
body { margin: 0 auto; max-width: 46rem; padding: 1.5rem 1rem 4rem; line-height: 1.55;
  font: 1rem/1.55 system-ui, sans-serif; color: CanvasText; background: Canvas; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
h2 { font-size: .85rem; margin: 0 0 .5rem; color: var(--dim); font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; color: var(--dim); }
dd { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
article { border-top: 1px solid var(--line); padding: 1rem 0; }
article.user { background: var(--soft); padding: 1rem; border-radius: .5rem; }
p, blockquote { margin: 0 0 .6rem; white-space: pre-wrap; overflow-wrap: anywhere; }
blockquote { border-left: 3px solid var(--line); padding-left: .8rem; color: var(--dim); }
pre { margin: 0; padding: .7rem; background: var(--soft); border-radius: .3rem; overflow-x: auto; }
pre:focus-visible { outline: 2px solid currentColor; }
img { max-width: 100%; height: auto; }
.aside { color: var(--dim); font-style: italic; }
"""


def render_conversation_page(document: ConversationDocument, *, include_data: bool = True) -> str:
    """Render the page of a conversation; with `include_data` it can be imported again."""
    name = escape(replace_unprintable(document.name or "A conversation"))
    facts = "".join(
        f"<dt>{label}</dt><dd>{escape(replace_unprintable(value))}</dd>" for label, value in _header_facts(document)
    )
    articles = "\n".join(_render_article(index, entry) for index, entry in enumerate(document.entries, 1))
    embedded_data = f"{PAGE_BEGIN}{document_to_embedded_json(document)}{PAGE_END}\n" if include_data else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CONVERSATION_PAGE_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="referrer" content="no-referrer">\n'
        f"<title>{name}</title>\n<style>{CONVERSATION_PAGE_STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{name}</h1>\n<dl>{facts}</dl>\n</header>\n<main>\n{articles}\n</main>\n{embedded_data}</body>\n</html>\n"
    )


def _header_facts(document: ConversationDocument) -> Iterator[tuple[str, str]]:
    if document.model:
        yield "Model", document.model
    yield "Items", f"{len(document.entries):,}"
    if document.instructions:
        yield "Instructions", document.instructions


def _render_article(index: int, entry: TranscriptEntry) -> str:
    body = "\n".join(PASSAGE_RENDERERS[passage.form](passage.text, index) for passage in item_passages(entry.item))
    head = f'<h2 id="i{index}">{index} · {escape(entry_title(entry))}</h2>'
    return f'<article class="{_css_class(entry.item)}" aria-labelledby="i{index}">\n{head}\n{body}\n</article>'


def _css_class(item: Item) -> str:
    if is_user_message(item) and not is_summary(item):
        return "user"
    return "assistant" if is_assistant_message(item) else "other"


def _render_image(url: str, index: int) -> str:
    if INLINE_IMAGE.fullmatch(url):
        return f'<img src="{url}" alt="the image of item {index}">'
    shown_url = url.partition(";")[0] if url.startswith("data:") else url
    return f'<p class="aside">an image: {escape(shown_url)}</p>'


PASSAGE_RENDERERS: dict[str, Callable[[str, int], str]] = {
    "prose": lambda text, index: f"<p>{escape(text)}</p>",
    "thought": lambda text, index: f"<blockquote>{escape(text)}</blockquote>",
    "code": lambda text, index: (
        f'<pre tabindex="0" role="region" aria-label="text of item {index}"><code>{escape(text)}</code></pre>'
    ),
    "image": _render_image,
    "aside": lambda text, index: f'<p class="aside">{escape(text)}</p>',
}
