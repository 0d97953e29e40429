"""Tokens of a streamed answer are shown when they arrive: none waits for a later one."""

import threading
from itertools import islice

import pytest

from tests.bench.frames import Token, answer_tokens, run_token_server, watch_tokens
from tests.terminal.pty_session import TIMEOUT_S

pytestmark = [pytest.mark.needs("terminal"), pytest.mark.usefixtures("home")]


def test_every_token_is_shown_before_the_next_one_arrives() -> None:
    """The server sends a delta only after the one before it was shown, so a delta that waits for the next never ends.

    Fifteen words are one delta, so that paragraphs, a list and code take a second.
    """
    words = list(islice(answer_tokens(), 150))
    groups = [words[start : start + 15] for start in range(0, len(words), 15)]
    deltas = [Token(group[-1].word, "".join(token.text for token in group)) for group in groups]
    last_words, shown = {delta.word for delta in deltas}, threading.Semaphore(1)

    def wait(number: int) -> None:
        assert shown.acquire(timeout=TIMEOUT_S), f"delta {number - 1} was not shown"

    def on_token(word: str) -> None:
        if word in last_words:
            shown.release()

    with run_token_server(deltas, wait, {}) as base_url:
        shown_at, reads = watch_tokens(base_url, deltas[-1].word, 80, on_token)
    assert list(shown_at) == [token.word for token in words]
    assert reads >= len(deltas)


def test_tokens_that_arrive_together_share_a_frame() -> None:
    """A fast answer is not drawn token by token."""
    tokens = list(islice(answer_tokens(), 400))
    with run_token_server(tokens, lambda number: None, {}) as base_url:
        shown_at, reads = watch_tokens(base_url, tokens[-1].word, 80)
    assert len(shown_at) == len(tokens)
    assert reads < len(tokens) / 2
