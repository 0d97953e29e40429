"""The files of the inspector page, and the single file that contains all of them."""

import base64
import json
import re
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest

from convo.history.items import SUMMARY_HEADING, user_message
from convo.history.records import Strategy
from convo.inspect.view import ConversationView
from convo.server.inspector_data import build_inspector_data
from convo.server.pages import PAGE_FILE, SCRIPT_FILES, STYLE_FILE, load_page_files, render_inspector_page
from tests.command_runner import ROOT
from tests.inspect.conversation_builder import START_TIME, ConversationBuilder, build_chain

STATIC = ROOT / "convo" / "server" / "static"
EXPORTED = re.compile(r"^export (?:async )?(?:function\*?|class|const) (\w+)", re.MULTILINE)
IMPORTED = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w.]+)";$', re.MULTILINE)


def static(name: str) -> str:
    return (STATIC / name).read_text("utf-8")


def source_hash(source: str) -> str:
    """Return the hash of an inline script or style for a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(sha256(source.encode()).digest()).decode()}'"


def inspector_data(view: ConversationView) -> Any:
    return build_inspector_data({"mine": view})["conversations"]["mine"]


def test_the_page_lists_its_conversations() -> None:
    assert build_inspector_data({"mine": build_chain(2).view("resp_2")})["list"] == {
        "data": [
            {
                "id": "mine",
                "name": "resp_2",
                "strategy": "chain",
                "status": "done",
                "items": 4,
                "unacknowledged": 0,
                "used_at": START_TIME + 60,
                "first_words": "question 1",
            }
        ],
        "next": None,
        "searched": "",
    }


class InlineSources(HTMLParser):
    """The inline scripts and styles of a page as a browser parses them, and its policy."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sources: list[tuple[str, dict[str, str | None], str]] = []
        self.policy = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in ("script", "style"):
            self.sources.append((tag, attributes, ""))
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(attributes["content"])

    def handle_data(self, data: str) -> None:
        if self.sources and self.cdata_elem:
            tag, attributes, text = self.sources[-1]
            self.sources[-1] = (tag, attributes, text + data)


def test_every_file_is_served_and_every_module_comes_after_its_imports() -> None:
    assert {path.name for path in STATIC.iterdir()} == {*SCRIPT_FILES, STYLE_FILE, PAGE_FILE}
    for index, name in enumerate(SCRIPT_FILES):
        lines = [line for line in static(name).splitlines() if line.startswith("import")]
        imports = IMPORTED.findall(static(name))
        assert len(imports) == len(lines)
        assert [other for _, other in imports if other not in SCRIPT_FILES[:index]] == []
        for names, other in imports:
            exported = set(EXPORTED.findall(static(other)))
            assert set(names.split(", ")) <= exported


def test_the_served_page_loads_all_modules_with_two_scripts_and_a_file_with_none() -> None:
    files = load_page_files()
    scripts = re.findall(r'<script type="module" [^>]*src="inspector/([a-z]+\.js)"></script>', files[""].body.decode())
    assert scripts == [SCRIPT_FILES[0], "page.js"]
    joined = files["page.js"].body.decode()
    assert [name for _, name in IMPORTED.findall(joined)] == scripts[:1]
    for name in SCRIPT_FILES[1:]:
        *_, last_line = static(name).splitlines()
        assert f"\n{last_line}\n" in joined
        assert set(re.findall(r"^(?:export )?(.*\{)$", static(name), re.MULTILINE)) <= set(joined.splitlines())
    assert "src=" not in render_inspector_page({"list": {}, "conversations": {}}).partition("<script")[0]


def test_a_name_means_one_thing_in_all_modules() -> None:
    """The modules share one scope in the single file."""
    *_, (_, _, code) = InlineSources(render_inspector_page(build_inspector_data({}))).sources
    names = re.findall(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", code, re.MULTILINE)
    assert names
    assert sorted(set(names)) == sorted(names)


def test_the_page_recognizes_a_summary_by_the_heading_of_stored_summaries() -> None:
    assert f'"{SUMMARY_HEADING}"' in static("items.js")


def test_no_module_creates_markup_from_text() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|\.srcdoc|https?://(?!www\.w3\.org/2000/svg)"
    )
    assert [(name, found) for name in (*SCRIPT_FILES, PAGE_FILE) for found in forbidden.findall(static(name))] == []
    assert not re.search(r"\son\w+=|style=", static(PAGE_FILE))


@pytest.mark.parametrize("text", ["</script><script>", "<!--<script>", "]]>", "\u2028\ud800", "&lt;"])
def test_the_single_file_runs_its_own_script_only(text: str) -> None:
    client = ConversationBuilder()
    client.turn("resp_1", text, text)
    data = build_inspector_data({text: client.view("resp_1")})
    page = InlineSources(render_inspector_page(data))
    (style, _, css), (data_tag, data_attributes, data_json), (script, script_attributes, code) = page.sources
    assert (style, data_tag, script) == ("style", "script", "script")
    assert (data_attributes, script_attributes) == (
        {"type": "application/json", "id": "convo-data"},
        {"type": "module"},
    )
    assert json.loads(data_json) == data
    assert page.policy.endswith(f"script-src {source_hash(code)}; style-src {source_hash(css)}")
    assert page.policy.startswith("default-src 'none'; ")
    assert "src=" not in render_inspector_page(data).partition("<script")[0]


def test_a_version_is_the_same_until_something_changes() -> None:
    client = build_chain(3)
    first_view = client.view("resp_3")
    assert inspector_data(first_view)["version"] == inspector_data(build_chain(3).view("resp_3"))["version"]
    client.turn("resp_4", "and", "on", after="resp_3")
    *before, last = first_view.links
    failed = replace(first_view, links=(*before, replace(last, status="failed")))
    others = [
        client.view("resp_3"),
        build_chain(3).view("resp_2"),
        build_chain(3).view("resp_3", notes=("gone",)),
        failed,
    ]
    assert len({inspector_data(first_view)["version"], *(inspector_data(view)["version"] for view in others)}) == 5


def test_equal_request_settings_are_stored_once() -> None:
    client = ConversationBuilder(Strategy.CONVERSATION)
    tools = {"instructions": "Be brief.", "tools": [{"type": "function", "name": "f"}]}
    for number, parameters in enumerate((tools, tools, {}), 1):
        after = f"resp_{number - 1}" if number > 1 else None
        client.turn(f"resp_{number}", "hi", "ho", after=after, parameters=parameters, conversation_id="conv_1")
    data = inspector_data(client.view("resp_3"))
    assert [link["request"] for link in data["links"]] == [0, 0, 1]
    assert data["requests"] == [{"model": "local/demo", **tools}, {"model": "local/demo"}]


def test_unconfirmed_items_are_marked_and_a_path_leads_to_its_root() -> None:
    client = build_chain(1)
    path = client.paths["resp_1"]
    longer_path = path.append([user_message("and now?")])
    view = client.view("resp_1", path=longer_path, confirmed_head=path.head)
    view.path_index.add(longer_path)
    data = inspector_data(view)
    assert data["unacknowledged"] == [longer_path.head]
    key, keys = data["path"]["through"], []
    while key is not None:
        keys.append(key)
        key = data["parents"][key]
    assert keys[::-1] == list(longer_path.keys)
