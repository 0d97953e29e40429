"""Markdown for the inspector page becomes a bounded tree of allowed elements, and nothing of it is markup."""

import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from convo.server.markdown_nodes import MAX_DEPTH, MAX_LINES, MAX_TEXT_CHARS, TAGS, render_markdown
from tests.server.browser import HOSTILE_TEXT
from tests.server.gateway import RunningGateway


def walk(nodes: Any, depth: int = 1) -> Iterator[tuple[dict[str, Any], int]]:
    for node in nodes:
        if not isinstance(node, str):
            yield node, depth
            yield from walk(node["children"], depth + 1)


def text_of(nodes: Any) -> str:
    return "".join(node if isinstance(node, str) else text_of(node["children"]) for node in nodes)


def test_markdown_becomes_elements() -> None:
    rendered = render_markdown(
        "## Rain\n\n*a* **b** `c` ~~d~~ [e](https://x.example/?a=1&b=2)\n\n3. one\n4. two\n\n> q\n"
    )
    assert rendered.nodes == [
        {"tag": "h2", "children": ["Rain"]},
        {
            "tag": "p",
            "children": [
                {"tag": "em", "children": ["a"]},
                " ",
                {"tag": "strong", "children": ["b"]},
                " ",
                {"tag": "code", "children": ["c"]},
                " ",
                {"tag": "s", "children": ["d"]},
                " ",
                {"tag": "a", "children": ["e"], "href": "https://x.example/?a=1&b=2"},
            ],
        },
        {
            "tag": "ol",
            "children": [{"tag": "li", "children": ["one"]}, {"tag": "li", "children": ["two"]}],
            "start": 3,
        },
        {"tag": "blockquote", "children": [{"tag": "p", "children": ["q"]}]},
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt:alert(1))",
        "[a](&#106;avascript:alert(1))",
        "[a](data:text/html,x)",
        "[a](vbscript:x)",
        "[a]()",
        "[a](//evil.example)",
        "[a](/v1/responses)",
        "[a]: javascript:alert(1)\n\n[a]",
        "<javascript:alert(1)>",
        "![a](https://tracker.example/x.png)",
        "<a href='https://x.example' onclick='alert(1)'>a</a>",
    ],
)
def test_an_unsafe_link_html_and_an_image_are_text(text: str) -> None:
    nodes = render_markdown(text).nodes
    assert not [node for node, _ in walk(nodes) if node["tag"] == "a" or "href" in node]


def test_random_hostile_text_has_only_allowed_elements() -> None:
    rng = Random(7)
    marks = [
        "*",
        "**",
        "[",
        "](",
        ")",
        "!",
        "`",
        "```\n",
        ">",
        "- ",
        "1. ",
        "|",
        "|-|\n",
        "\n",
        "\n\n",
        "<",
        "# ",
        "~~",
        "\\",
        "&lt;",
    ]
    for _ in range(300):
        parts = [rng.choice([*marks, "word", HOSTILE_TEXT, "https://x.example", "javascript:x"]) for _ in range(60)]
        rendered = render_markdown("".join(parts))
        assert rendered.nodes is not None
        for node, depth in walk(rendered.nodes):
            assert node["tag"] in TAGS
            assert set(node) <= {"tag", "children", "href", "start"}
            assert str(node.get("href", "https://")).lower().startswith(("https://", "http://", "mailto:"))
            assert depth <= MAX_DEPTH


HOSTILE_FORMS = {
    "emphasis": "*a_ ", "stars": "*", "brackets": "[", "links": "[a](", "images": "![a", "quotes": "> ", "lists": "- ",
    "nested lists": "* * * * * a\n", "headings": "# a\n", "setext": "a\n=\n", "tables": "|a|\n|-|\n", "lines": "a\n",
    "definitions": "[a]: http://b\n", "references": "[a][b] ", "entities": "&amp;", "escapes": "\\", "fences": "```\n",
    "wide tables": "|a" * 400 + "|\n" + "|-" * 400 + "|\n" + "|a|\n" * 1900,
    "ticks": "".join("`" * length + " " for length in range(1, 300)),
    "deep": "".join(">" * depth + "a\n" for depth in range(200)), "paragraphs": "[" * 2900 + "\n\n",
    "nested emphasis": "*a **b " * 400 + " c** d*" * 400,
}  # fmt: skip


@pytest.mark.parametrize("form", HOSTILE_FORMS)
def test_a_hostile_text_takes_a_bounded_time(form: str) -> None:
    unit = HOSTILE_FORMS[form]
    text = (unit * (MAX_TEXT_CHARS // len(unit) + 1))[:MAX_TEXT_CHARS]
    text = "\n".join(text.split("\n")[:MAX_LINES])
    started_at = time.process_time()
    rendered = render_markdown(text)
    assert time.process_time() - started_at < 3
    assert rendered.nodes is not None or rendered.note.startswith("plain text: ")


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\n" * (MAX_LINES + 1), "*a* *b*\n\n" * 990 + "a *b* " * 450])
def test_a_longer_text_is_plain_and_says_so(text: str) -> None:
    rendered = render_markdown(text)
    assert rendered.nodes is None
    assert "plain text: " in rendered.note


@pytest.mark.parametrize("text", ["*a* " * 900, "[" * 101 + " *a*", "- item\n\n  " + "word " * 700])
def test_a_long_paragraph_keeps_its_text(text: str) -> None:
    nodes = render_markdown(text).nodes
    assert "".join(text_of(nodes).split()) == "".join(text.removeprefix("- ").split())


def test_the_call_renders_at_most_twenty_texts(shared_gateway: RunningGateway) -> None:
    def post(body: Any) -> Any:
        return shared_gateway.http.post("/inspect/api/markdown", json=body)

    rendered = post({"texts": ["*a*", "x" * 100_000]}).json()["data"]
    assert rendered[0] == {"nodes": [{"tag": "p", "children": [{"tag": "em", "children": ["a"]}]}], "note": ""}
    assert (rendered[1]["nodes"], rendered[1]["note"][:11]) == (None, "plain text:")
    for body in ({"texts": ["a"] * 21}, {"texts": [1]}, {"texts": "a"}, {"text": ["a"]}):
        assert post(body).status_code == 400
