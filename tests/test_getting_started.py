"""The first commands of a new user, with a key and without one, in a new CONVO_HOME.

The commands run in this process; in the long variant each command is a separate process.
"""

from pathlib import Path

import pytest

from tests.docs.pages import GETTING_STARTED, run_page
from tests.docs.transcript import differences

pytestmark = pytest.mark.needs("bash")

run_modes = pytest.mark.parametrize(
    "apart", [pytest.param(False, id="here"), pytest.param(True, id="as processes", marks=pytest.mark.full)]
)


@run_modes
@pytest.mark.needs("weights")
def test_without_a_key_the_built_in_model_answers_and_everything_can_be_looked_at(apart: bool, tmp_path: Path) -> None:
    text = (GETTING_STARTED / "without_key.md").read_text(encoding="utf-8")
    with run_page(text, tmp_path, in_processes=apart) as (output, openai):
        assert differences(text, output) == ""
    assert openai.requests == []


@run_modes
def test_with_a_key_what_is_shown_is_what_is_sent(apart: bool, tmp_path: Path) -> None:
    text = (GETTING_STARTED / "with_key.md").read_text(encoding="utf-8")
    with run_page(text, tmp_path, in_processes=apart) as (output, openai):
        assert differences(text, output) == ""
    sent_texts = [body["input"][-1]["content"][0]["text"] for body in openai.bodies]
    assert sent_texts[:4] == ["Say hello in French.", "And in Spanish?", "And in German?", "And in Norwegian?"]
    assert [len(body["input"]) for body in openai.bodies[:4]] == [1, 1, 1, 5]
    assert [body["store"] for body in openai.bodies[:4] if "store" in body] == [False]
