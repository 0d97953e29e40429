"""What could stand where the cursor is."""

from pathlib import Path

import pytest

from convo.cli.offering import Offering
from convo.config import Flags, read, resolve
from convo.history import Strategy
from convo.stores.open import open_store
from convo.ui.commands import taken
from convo.ui.completing import Offer, Place, files, fitting, place
from tests.cli.held import DATABASE, held, talks


@pytest.mark.parametrize(
    ("before", "meant"),
    [
        ("/", Place("command", "/")),
        ("/mo", Place("command", "/mo")),
        ("/model ", Place("model", "")),
        ("/MODEL gpt", Place("model", "gpt")),
        ("/load my", Place("handle", "my")),
        ("/owner c", Place("owner", "c")),
        ("/attach a/b", Place("file", "a/b")),
        ("/undo x", Place("", "x")),
        ("//usr", Place("", "")),
        ("see @no", Place("file", "no")),
        ('see @"my no', Place("file", '"my no')),
        ('see @"my notes" and', Place("", "")),
        ("me@home", Place("", "")),
        ("!cat no", Place("file", "no")),
        ("plain words", Place("", "")),
    ],
)
def test_what_is_completed_depends_on_what_stands_before_the_cursor(before: str, meant: Place) -> None:
    assert place(before, taken) == meant


def test_files_are_offered_with_folders_marked_and_blanks_quoted(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("notes.md", "my notes.md", ".hidden", "docs/deep.md"):
        (tmp_path / name).write_text("x")
    assert [one.word for one in files("")] == ["docs/", '"my notes.md"', "notes.md"]
    assert [one.word for one in files("docs/d")] == ["docs/deep.md"]
    assert [one.word for one in files('"my')] == ['"my notes.md"']
    assert [one.word for one in files(".h")] == [".hidden"]
    assert files("nowhere/x") == []


def test_what_begins_alike_comes_before_what_only_has_it_in_it() -> None:
    offers = [Offer("openai/gpt-5"), Offer("groq/gpt-oss")]
    assert fitting(offers, "open") == offers[:1]
    assert fitting(offers, "GPT") == offers


async def test_handles_owners_and_models_are_the_ones_that_are_known_here(home: Path) -> None:
    await held_here(home)
    store = open_store(f"sqlite:{home / DATABASE}")
    try:
        offering = Offering(store, resolve(read(None, Flags(model="scripted/echo"))))
        assert await offering.suggest("/resume my") == (2, [Offer("my-talk", "session")])
        words = {one.word for one in (await offering.suggest("/"))[1]}
        assert {"/owner ", "/usage", "/exit"} <= words  # a blank only where something may follow
        assert [one.word for one in (await offering.suggest("/owner "))[1]] == [str(one) for one in Strategy]
        assert Offer("scripted/echo") in (await offering.suggest("/model scr"))[1]
        assert (await offering.suggest("/undo x"))[1] == ()
    finally:
        await store.aclose()


async def held_here(home: Path) -> None:
    import asyncio

    await asyncio.to_thread(held, home, talks("my-talk", Strategy.SESSION, "one"))
