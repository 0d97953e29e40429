"""The files of the inspector page, and the one file that is made of them."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from convo.history import Strategy
from convo.items import user
from convo.pages.inspected import conversation, together, version
from convo.pages.inspector import MODULES, PAGE, STYLE, hash_of, one_script, text, whole
from tests.inspection.built import Talk, chain
from tests.running import ROOT

STATIC = ROOT / "convo" / "pages" / "static"
EXPORTED = re.compile(r"^export (?:function\*?|class|const) (\w+)", re.MULTILINE)
IMPORTED = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w.]+)";$', re.MULTILINE)


class Inline(HTMLParser):
    """Scripts and styles as a browser takes them out of a page, and its policy."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.policy = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "style"):
            self.found.append((tag, given, ""))
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(given["content"])

    def handle_data(self, data: str) -> None:
        if self.found and self.cdata_elem:
            tag, given, words = self.found[-1]
            self.found[-1] = (tag, given, words + data)


def test_every_file_is_served_and_every_module_stands_behind_those_that_it_imports() -> None:
    assert {path.name for path in STATIC.iterdir()} == {*MODULES, STYLE, PAGE}
    for at, name in enumerate(MODULES):
        lines = [line for line in text(name).splitlines() if line.startswith("import")]
        found = IMPORTED.findall(text(name))
        assert len(found) == len(lines)
        assert [other for _, other in found if other not in MODULES[:at]] == []
        for names, other in found:
            exported = set(
                re.findall(r"^export (?:async )?(?:function\*?|class|const) (\w+)", text(other), re.MULTILINE)
            )
            assert set(names.split(", ")) <= exported


def test_one_name_stands_for_one_thing_in_all_modules() -> None:
    """In one file they share a scope."""
    names = re.findall(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", one_script(), re.MULTILINE)
    assert len(names) > 50
    assert sorted(set(names)) == sorted(names)


def test_no_module_makes_markup_out_of_words() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|\.srcdoc|https?://(?!www\.w3\.org/2000/svg)"
    )
    assert [(name, found) for name in (*MODULES, PAGE) for found in forbidden.findall(text(name))] == []
    assert not re.search(r"\son\w+=|style=", text(PAGE))


@pytest.mark.parametrize("words", ["</script><script>", "<!--<script>", "]]>", "\u2028\ud800", "&lt;"])
def test_the_one_file_runs_its_own_script_alone_whatever_was_said(words: str) -> None:
    talk = Talk()
    talk.turn("resp_1", words, words)
    data = together({words: talk.known("resp_1")})
    read = Inline(whole(data))
    (style, _, css), (kept, given, told), (script, how, code) = read.found
    assert (style, kept, script) == ("style", "script", "script")
    assert (given, how) == ({"type": "application/json", "id": "convo-data"}, {"type": "module"})
    assert json.loads(told) == data
    assert read.policy.endswith(f"script-src {hash_of(code)}; style-src {hash_of(css)}")
    assert read.policy.startswith("default-src 'none'; ")
    assert "src=" not in whole(data).partition("<script")[0]


def test_a_version_is_the_same_until_something_changes() -> None:
    talk = chain(3)
    known = talk.known("resp_3")
    assert version(known) == version(chain(3).known("resp_3"))
    talk.turn("resp_4", "and", "on", after="resp_3")
    *before, last = known.links
    failed = replace(known, links=(*before, replace(last, status="failed")))
    others = [talk.known("resp_3"), chain(3).known("resp_2"), chain(3).known("resp_3", notes=("gone",)), failed]
    assert len({version(known), *map(version, others)}) == 5


def test_requests_that_were_alike_stand_once() -> None:
    talk = Talk(Strategy.CONVERSATION)
    tools = {"instructions": "Be brief.", "tools": [{"type": "function", "name": "f"}]}
    for number, parameters in enumerate((tools, tools, {}), 1):
        after = f"resp_{number - 1}" if number > 1 else None
        talk.turn(f"resp_{number}", "hi", "ho", after=after, parameters=parameters, conversation_id="conv_1")
    found = conversation(talk.known("resp_3"))
    assert [link["request"] for link in found["links"]] == [0, 0, 1]
    assert found["requests"] == [{"model": "local/demo", **tools}, {"model": "local/demo"}]


def test_what_waits_is_marked_and_a_path_leads_back_to_its_beginning() -> None:
    talk = chain(1)
    path = talk.paths["resp_1"]
    grown = path.grow([user("and now?")])
    known = talk.known("resp_1", path=grown, mark=path.head)
    known.places.add(grown)
    found = conversation(known)
    assert found["unacknowledged"] == [grown.head]
    key, back = found["path"]["through"], []
    while key is not None:
        back.append(key)
        key = found["parents"][key]
    assert back[::-1] == list(grown.keys)
