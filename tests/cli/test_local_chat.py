"""The built-in model continues a conversation in a new process, with every strategy."""

import re
from pathlib import Path

import pytest

from convo.history.records import Strategy
from tests.cli.chat_commands import ECHO
from tests.cli.stored_chats import chat_of, write_chats
from tests.command_runner import Convo, Launch
from tests.terminal.plain_repl import run_repl

SHORT = ("--max-output-tokens", "6", "--temperature", "0", "--json")


QUESTIONS = ("My name is Anna. Say hello.", "What is my name?", "And where do birds live?", "Thank you.")


@pytest.mark.needs("weights")
@pytest.mark.parametrize(
    ("strategy", "questions"),
    [(Strategy.CHAIN, QUESTIONS[:3])]
    + [
        pytest.param(strategy, QUESTIONS[:2], marks=pytest.mark.full(every_commit=True))
        for strategy in Strategy
        if strategy is not Strategy.CHAIN
    ]
    + [pytest.param(strategy, QUESTIONS, marks=pytest.mark.full) for strategy in Strategy],
)
def test_each_process_continues_from_the_turns_of_earlier_processes(
    strategy: Strategy, questions: tuple[str, ...], launch: Launch, tmp_path: Path
) -> None:
    owner_flags = [f"--{strategy}"] + (["--from", str(tmp_path / "talk.json")] if strategy is Strategy.REPLAY else [])
    turns = [launch("chat", "-m", "local", *SHORT, *owner_flags, questions[0]).json()]
    turns += [launch("chat", "-c", *SHORT, question).json() for question in questions[1:]]

    assert [turn["strategy"] for turn in turns] == [strategy] * len(questions)
    assert {turn["session"] for turn in turns} == {turns[0]["session"]}
    assert all(turn["output_text"] for turn in turns)
    input_tokens = [turn["usage"]["input_tokens"] for turn in turns]
    output_tokens = [turn["usage"]["output_tokens"] for turn in turns]
    assert all(
        after > before + out for before, out, after in zip(input_tokens, output_tokens, input_tokens[1:], strict=False)
    )

    conversation = launch("inspect", turns[0]["session"], "--json").json()
    assert [link["response_id"] for link in conversation["links"]] == [turn["response_id"] for turn in turns]
    assert len(conversation["items"]) == 2 * len(questions)


TOO_LONG = "word and more words. " * 1_200


def test_the_next_request_of_the_built_in_model_says_that_it_does_not_fit(launch: Launch, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "hi"))
    command = ("next", "mine", "-m", "local", "--count", "offline")
    got = launch(*command, TOO_LONG)
    does_not_fit = (
        "does not fit: local/smollm2-135m-instruct accepts 3,840 input tokens; "
        "convo compact mine, shorten it, or use another model"
    )
    assert does_not_fit in got.out.splitlines()
    assert (launch(*command, TOO_LONG, "--json").json()["fits"], launch(*command, "hi", "--json").json()["fits"]) == (
        False,
        True,
    )
    assert "does not fit" not in launch(*command, "hi").out


@pytest.mark.full(every_commit=True)
@pytest.mark.needs("weights")
def test_a_message_that_does_not_fit_is_refused_and_not_stored(launch: Launch, home: Path) -> None:
    got = launch("chat", "-m", "local", "--name", "mine", TOO_LONG)
    assert (got.exit, got.err.splitlines()[-1]) == (
        1,
        "  try: shorten the message, compact the conversation, or choose a model with a larger context window",
    )
    assert launch("chat", "-q", "-m", "local", "--name", "mine", "--max-output-tokens", "3", "hi").exit == 1
    assert launch("chat", "--from", "mine", TOO_LONG).exit == 1
    assert launch("sessions", "show", "mine", "--json").json()["items"] == 2


@pytest.mark.needs("weights", "posix")
def test_the_receipt_says_that_the_model_was_loaded_for_this_answer(convo: Convo) -> None:
    one = ("-m", "local", "--max-output-tokens", "1")
    assert re.search(r" \d+\.\d s · loaded in \d+\.\d s · resp_", convo("chat", *one, "hi").err)
    first, second = (line for line in run_repl(*one, lines=["hi", "and"]).err.splitlines() if " · resp_" in line)
    assert re.search(r" \d+\.\d s \(\d+\.\d s loading\) · resp_", first)
    assert "load" not in second
    assert "load" not in convo("chat", *ECHO, "hi").err
