"""The built-in model holds a conversation under every owner, and the next process goes on with it."""

from pathlib import Path

import pytest

from convo.history import Strategy
from tests.running import Launch

SHORT = ("--max-output-tokens", "12", "--temperature", "0", "--json")


@pytest.mark.needs("weights")
@pytest.mark.parametrize("strategy", Strategy)
def test_three_turns_and_a_fourth_each_by_a_process_of_its_own(
    strategy: Strategy, launch: Launch, tmp_path: Path
) -> None:
    begin = [f"--{strategy}"] + (["--from", str(tmp_path / "talk.json")] if strategy is Strategy.REPLAY else [])
    turns = [launch("chat", "-m", "local", *SHORT, *begin, "My name is Anna. Say hello.").json()]
    more = ("What is my name?", "And where do birds live?", "Thank you.")
    turns += [launch("chat", "-c", *SHORT, question).json() for question in more]

    assert [turn["strategy"] for turn in turns] == [strategy] * 4
    assert {turn["session"] for turn in turns} == {turns[0]["session"]}
    assert all(turn["output_text"] for turn in turns)
    read = [turn["usage"]["input_tokens"] for turn in turns]
    wrote = [turn["usage"]["output_tokens"] for turn in turns]
    assert all(after > before + out for before, out, after in zip(read, wrote, read[1:], strict=False))

    shown = launch("inspect", turns[0]["session"], "--json").json()
    assert [link["response_id"] for link in shown["links"]] == [turn["response_id"] for turn in turns]
    assert len(shown["items"]) == 8
