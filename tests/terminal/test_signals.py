"""Signals, with a running and with a blocked event loop."""

import asyncio
import signal

import pytest

from convo.terminal.signals import on_signal, restore_before_default_action


@pytest.mark.needs("posix")
async def test_the_third_interrupt_ends_a_blocked_event_loop() -> None:
    calls: list[str] = []
    with on_signal(signal.SIGINT, lambda: calls.append("one")):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        assert calls == ["one", "one"]
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
    assert calls == ["one", "one", "one"]


@pytest.mark.needs("posix")
async def test_before_the_interrupt_that_ends_the_process_the_terminal_is_restored_once() -> None:
    calls: list[str] = []

    def restore() -> None:
        calls.append("restored")
        signal.raise_signal(signal.SIGINT)  # does not interrupt it

    with on_signal(signal.SIGINT, lambda: None), restore_before_default_action(restore):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert calls == ["restored"]


@pytest.mark.needs("posix")
async def test_after_the_interrupt_that_ends_the_process_no_signal_is_written_to_the_loop() -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, lambda: None)
    try:
        with on_signal(signal.SIGINT, lambda: None):
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
