"""The first commands of a new user, with a key and without one, in a new CONVO_HOME.

The commands run in this process; in the long variant each command is a separate process.
"""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from tests.command_runner import ROOT, Convo
from tests.docs.pages import GETTING_STARTED, run_page, sections
from tests.docs.transcript import blocks, differences, parse_console
from tests.loopback_server import LoopbackServer

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


# -- twenty tasks ---------------------------------------------------------------------------------

TASKS = {
    section.splitlines()[0].removeprefix("## "): section
    for section in sections((GETTING_STARTED / "tasks.md").read_text(encoding="utf-8"))[1:]
}
"""The text of each task by its title."""

GUIDE = re.compile(r"<!-- guide: (.*?): (.*?) -->")

README_ROW = re.compile(r"^\| \[?(?P<task>[^\]|]+)(?:\]\((?P<page>[^)]+)\))? \| (?P<commands>.+) \|$", re.MULTILINE)

TASK_MARKS = {
    "Talk offline": [pytest.mark.needs("weights")],
    "Use Ollama": [pytest.mark.needs("posix")],
    "See a request as curl": [pytest.mark.needs("curl")],
    "Serve replicas": [pytest.mark.needs("postgresql")],
    "Make a key for a colleague": [pytest.mark.needs("curl")],
}

MAX_TASK_S = 60.0
"""Seconds that a task may take; on an idle machine each takes less than five. `--durations` lists all of them."""

REQUEST_CHECKS: dict[str, Callable[[LoopbackServer], bool]] = {
    "Talk offline": lambda openai: not openai.requests,
    "Set a key": lambda openai: [one.headers["authorization"] for one in openai.requests] == ["Bearer test-key"],
    "Change the reasoning effort": lambda openai: (
        [body["reasoning"]["effort"] for body in openai.bodies] == ["high", "low"]
    ),
    "Attach a file": lambda openai: "Milk is out." in json.dumps(openai.bodies[0]["input"]),
    "Continue an earlier chat": lambda openai: len(openai.bodies[-1]["input"]) == 3,
    "See a request as curl": lambda openai: "previous_response_id" in openai.bodies[-1],
}
"""The effect of a task that its output does not show: the requests to the server in place of OpenAI."""


@run_modes
@pytest.mark.parametrize("task", [pytest.param(name, id=name, marks=TASK_MARKS.get(name, ())) for name in TASKS])
def test_a_new_user_solves_a_task_with_the_commands_of_the_guides(task: str, apart: bool, tmp_path: Path) -> None:
    start = monotonic()
    with run_page(TASKS[task], tmp_path, in_processes=apart) as (output, openai):
        assert differences(TASKS[task], output) == ""
        assert task not in REQUEST_CHECKS or REQUEST_CHECKS[task](openai)
    assert monotonic() - start < MAX_TASK_S


def test_each_of_the_tasks_is_a_row_of_the_readme_with_its_commands() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("## Common tasks")[1].split("\n## ")[0]
    rows = {row["task"]: row for row in README_ROW.finditer(table) if row["task"] != "task"}
    assert list(rows) == list(TASKS)
    assert len(rows) == 20
    for task, row in rows.items():
        consoles = [block.text for block in blocks(TASKS[task]) if block.language == "console"]
        typed = [one.command for console in consoles for one in parse_console(console)]
        commands = [text for text in re.findall(r"`([^`]+)`", row["commands"]) if text.startswith("convo ")]
        assert commands
        for command in commands:
            assert any(command in line for line in typed), command
        assert row["page"] is None or (ROOT / row["page"]).is_file()


@pytest.mark.parametrize("task", TASKS)
def test_the_guides_of_a_task_contain_the_text_that_they_are_named_for(task: str, convo: Convo) -> None:
    for place, text in GUIDE.findall(TASKS[task]):
        is_help = place.startswith("convo ")
        guide = convo(*shlex.split(place)[1:]).out if is_help else (ROOT / place).read_text(encoding="utf-8")
        assert text in " ".join(guide.split()), place
