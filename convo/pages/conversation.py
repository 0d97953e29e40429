"""A conversation as one page that can be mailed, kept and read without a network.

Words of people and models are never trusted: all of them are escaped, images are shown only where
they stand in the page themselves, and a policy in the page forbids whatever somebody finds anyway.
The conversation itself stands beside it as data, so that `convo import` takes the page back; a
browser does not run that.
"""

import re
from collections.abc import Callable, Iterator
from html import escape

from convo.inspection.document import PAGE_BEGIN, PAGE_END, Document, embedded
from convo.inspection.passages import legible, passages, title
from convo.items import Item, is_assistant, is_user

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

INLINE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
"""Images that a browser may be shown; an SVG may hold anything."""

STYLE = """
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


def page(document: Document, *, data: bool = True) -> str:
    """The whole file; with `data`, it can be imported again."""
    name = escape(legible(document.name or "A conversation"))
    facts = "".join(f"<dt>{label}</dt><dd>{escape(legible(words))}</dd>" for label, words in _facts(document))
    articles = "\n".join(_article(at, item) for at, item in enumerate(document.items, 1))
    kept = f"{PAGE_BEGIN}{embedded(document)}{PAGE_END}\n" if data else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="referrer" content="no-referrer">\n'
        f"<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{name}</h1>\n<dl>{facts}</dl>\n</header>\n<main>\n{articles}\n</main>\n{kept}</body>\n</html>\n"
    )


def _facts(document: Document) -> Iterator[tuple[str, str]]:
    if document.model:
        yield "Model", document.model
    yield "Items", f"{len(document.items):,}"
    if document.instructions:
        yield "Instructions", document.instructions


def _article(at: int, item: Item) -> str:
    body = "\n".join(FORMS[passage.form](passage.words, at) for passage in passages(item))
    head = f'<h2 id="i{at}">{at} · {escape(title(item))}</h2>'
    return f'<article class="{_class(item)}" aria-labelledby="i{at}">\n{head}\n{body}\n</article>'


def _class(item: Item) -> str:
    return "user" if is_user(item) else "assistant" if is_assistant(item) else "other"


def _image(url: str, at: int) -> str:
    if INLINE.fullmatch(url):
        return f'<img src="{url}" alt="the image of item {at}">'
    shown = url.partition(";")[0] if url.startswith("data:") else url
    return f'<p class="aside">an image: {escape(shown)}</p>'


FORMS: dict[str, Callable[[str, int], str]] = {
    "prose": lambda words, at: f"<p>{escape(words)}</p>",
    "thought": lambda words, at: f"<blockquote>{escape(words)}</blockquote>",
    "code": lambda words, at: (
        f'<pre tabindex="0" role="region" aria-label="text of item {at}"><code>{escape(words)}</code></pre>'
    ),
    "image": _image,
    "aside": lambda words, at: f'<p class="aside">{escape(words)}</p>',
}
