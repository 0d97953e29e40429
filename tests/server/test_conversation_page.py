"""The page of one conversation shows its items; no text in it becomes markup or a script."""

from html.parser import HTMLParser

import pytest

from convo.history.items import Item, assistant_message, user_message
from convo.inspect.serialize import ConversationDocument
from convo.server.pages import render_conversation_page

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)> & \"quoted\" 'too' <!-- \x1b[31m \ud83d"
PNG = "data:image/png;base64,iVBORw0KGgo="


class ParsedPage(HTMLParser):
    """The elements and the text of a page as a browser parses it. Fails if elements are not closed in order."""

    VOID = ("meta", "img", "link", "br", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.open, self.styles = "", list[str](), ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def document(*items: Item, name: str = "Monads") -> ConversationDocument:
    return ConversationDocument(
        items=items, confirmed_count=len(items), name=name, model="openai/gpt-5-mini", instructions="Be brief."
    )


EVERYTHING: list[Item] = [
    user_message(EVIL),
    {"role": EVIL, "content": EVIL},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": EVIL}]},
    {"type": "function_call", "call_id": EVIL, "name": EVIL, "arguments": EVIL},
    {"type": "function_call_output", "call_id": EVIL, "output": EVIL},
    {"type": EVIL, "more": EVIL},
    user_message("", {"type": "input_image", "image_url": f'{PNG}" onerror="alert(1)'}),
    user_message("", {"type": "input_image", "image_url": "javascript:alert(1)"}),
    user_message("", {"type": "input_image", "image_url": "data:image/svg+xml;base64,AAAA"}),
    user_message("", {"type": "input_file", "filename": EVIL}),
    assistant_message(EVIL),
]


@pytest.mark.parametrize("data", [True, False])
def test_no_text_becomes_markup(data: bool) -> None:
    page = ParsedPage(render_conversation_page(document(*EVERYTHING, name=EVIL), include_data=data))
    assert page.open == []
    assert page.all("script") == ([{"type": "application/json", "id": "convo"}] if data else [])
    assert page.all("img") == []
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("href", "srcset", "style")]
    assert page.text.count("<script>alert(1)</script>") >= 8
    assert "\x1b" not in page.text
    render_conversation_page(document(*EVERYTHING, name=EVIL), include_data=data).encode("utf-8")


def test_an_embedded_image_is_shown() -> None:
    page = ParsedPage(
        render_conversation_page(document(user_message("look", {"type": "input_image", "image_url": PNG})))
    )
    assert page.all("img") == [{"src": PNG, "alt": "the image of item 1"}]


def test_the_page_fetches_nothing_and_runs_no_script() -> None:
    page = ParsedPage(render_conversation_page(document(user_message("see https://example.com/a.png"))))
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv"))
    assert policy
    assert policy.startswith("default-src 'none';")
    assert "script-src" not in policy
    assert not [attributes for _, attributes in page.elements if "src" in attributes or "href" in attributes]


def test_the_page_can_be_read_with_a_screen_reader() -> None:
    page = ParsedPage(
        render_conversation_page(
            document(
                user_message("hi"), assistant_message("ho"), {"type": "function_call", "name": "f", "arguments": "{}"}
            )
        )
    )
    assert page.all("html") == [{"lang": "en"}]
    headings = {element["id"] for element in page.all("h2")}
    assert [element["aria-labelledby"] in headings for element in page.all("article")] == [True] * 3
    assert [len(page.all(tag)) for tag in ("h1", "main", "header", "title")] == [1, 1, 1, 1]
    assert page.all("pre") == [{"tabindex": "0", "role": "region", "aria-label": "text of item 3"}]


def test_the_page_follows_the_light_and_the_dark_color_scheme() -> None:
    text = render_conversation_page(document(user_message("hi")))
    assert "color-scheme: light dark" in text
    assert "prefers-color-scheme: dark" in text


PAGE_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>Monads</title>
<style>
:root { color-scheme: light dark;"""

PAGE_BODY = """
</style>
</head>
<body>
<header>
<h1>Monads</h1>
<dl><dt>Model</dt><dd>openai/gpt-5-mini</dd><dt>Items</dt><dd>6</dd><dt>Instructions</dt><dd>Be brief.</dd></dl>
</header>
<main>
<article class="user" aria-labelledby="i1">
<h2 id="i1">1 · user</h2>
<p>Hi &lt;b&gt;</p>
<img src="data:image/png;base64,iVBORw0KGgo=" alt="the image of item 1">
</article>
<article class="assistant" aria-labelledby="i2">
<h2 id="i2">2 · assistant</h2>
<p>Ho</p>
</article>
<article class="other" aria-labelledby="i3">
<h2 id="i3">3 · reasoning</h2>
<blockquote>A &amp; B</blockquote>
</article>
<article class="other" aria-labelledby="i4">
<h2 id="i4">4 · call of f</h2>
<pre tabindex="0" role="region" aria-label="text of item 4"><code>{&quot;a&quot;:1}</code></pre>
</article>
<article class="other" aria-labelledby="i5">
<h2 id="i5">5 · output of c1</h2>
<pre tabindex="0" role="region" aria-label="text of item 5"><code>done</code></pre>
</article>
<article class="user" aria-labelledby="i6">
<h2 id="i6">6 · user</h2>
<p class="aside">an image: data:image/svg+xml</p>
<p class="aside">an image: https://example.com/a.png?x=1;y=2</p>
<p class="aside">a file: a.pdf</p>
</article>
</main>
</body>
</html>
"""


def test_the_whole_page() -> None:
    items: list[Item] = [
        user_message("Hi <b>", {"type": "input_image", "image_url": PNG}),
        assistant_message("Ho"),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "A & B"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        user_message(
            "",
            {"type": "input_image", "image_url": "data:image/svg+xml;base64,AAAA"},
            {"type": "input_image", "image_url": "https://example.com/a.png?x=1;y=2"},
            {"type": "input_file", "filename": "a.pdf"},
        ),
    ]
    head, style_end, body = render_conversation_page(document(*items), include_data=False).partition("\n</style>")
    assert head.startswith(PAGE_HEAD)
    assert style_end + body == PAGE_BODY


def test_a_page_without_name_model_and_instructions_has_only_the_number_of_items() -> None:
    empty = ConversationDocument(items=(), confirmed_count=0, name="", model="", instructions="")
    _, _, body = render_conversation_page(empty, include_data=False).partition("<body>\n")
    assert body == (
        "<header>\n<h1>A conversation</h1>\n<dl><dt>Items</dt><dd>0</dd></dl>\n</header>\n"
        "<main>\n\n</main>\n</body>\n</html>\n"
    )
