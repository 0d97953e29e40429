"""`convo inspect --html`: a page in one file."""

import json
from pathlib import Path
from typing import Any

import pytest

from convo.history.records import Strategy
from tests.cli.stored_chats import ChatWriter, write_chats
from tests.command_runner import Convo
from tests.runstate.snapshots import snapshot


async def write_sessions(writer: ChatWriter) -> None:
    await writer.chat(Strategy.REPLAY, "monads", "What is a monad?")
    await writer.chat(Strategy.SESSION, "other", "one", "two")


@pytest.fixture
def stored_sessions(home: Path) -> None:
    write_chats(home, write_sessions)


def page_data(page: str) -> Any:
    return json.loads(page.partition('id="convo-data">')[2].partition("</script>")[0])


@pytest.mark.usefixtures("stored_sessions")
def test_the_page_contains_the_inspect_output_of_each_handle(convo: Convo, tmp_path: Path) -> None:
    got = convo("inspect", "monads", "other", "--html", "page.html")
    assert (got.exit, got.out, got.err) == (0, "", "wrote 2 conversations to page.html\n")
    file = tmp_path / "page.html"
    assert file.stat().st_mode & 0o777 == 0o600
    data = page_data(file.read_text("utf-8"))
    assert [(one["id"], one["items"]) for one in data["list"]["data"]] == [("monads", 2), ("other", 4)]
    records = [json.loads(line) for line in convo("inspect", "monads", "other", "--json").out.splitlines()]
    for record in records:
        conversation = data["conversations"][record["handle"]]
        links = record.pop("links")
        assert {name: conversation[name] for name in record} == record
        for link, page_link in zip(links, conversation["links"], strict=True):
            assert {name: page_link[name] for name in link} == link


@pytest.mark.usefixtures("stored_sessions")
def test_a_dash_is_stdout_and_not_a_file(convo: Convo, tmp_path: Path) -> None:
    got = convo("inspect", "monads", "other", "--html", "-")
    assert (got.exit, got.err, (tmp_path / "-").exists()) == (0, "", False)
    assert convo("inspect", "monads", "other", "--html", "page.html").exit == 0
    assert page_data(got.out) == page_data((tmp_path / "page.html").read_text("utf-8"))


@pytest.mark.usefixtures("stored_sessions")
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["monads", "--html", "x.html", "--items"], "--items and --html cannot be used together"),
        (["monads", "--html", "talk.json"], "talk.json is the conversation's own file"),
        (["monads", "--html", "no/such/folder.html"], "no/such/folder.html cannot be written"),
        (["monads", "--html", "x.html", "--watch"], "--watch and --html cannot be used together"),
    ],
)
def test_an_invalid_output_file_is_refused_and_nothing_is_written(
    convo: Convo, tmp_path: Path, argv: list[str], message: str
) -> None:
    before = (tmp_path / "talk.json").read_bytes()
    got = convo("inspect", *argv)
    assert got.exit in (1, 2)
    assert message in got.err
    assert (tmp_path / "talk.json").read_bytes() == before
    assert not (tmp_path / "x.html").exists()


def test_a_paused_run_has_no_html_page(convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(snapshot("0.24.0__schema1.21__parallel_mixed_decided.json"))
    got = convo("inspect", "state.json", "--html", "x.html")
    assert (got.exit, got.err) == (
        2,
        "convo: state.json is a paused run; --html shows conversations only\n  try: convo inspect state.json\n",
    )
    assert not (tmp_path / "x.html").exists()
