"""An interactive chat with --tool, in a real terminal."""

from pathlib import Path

import pytest

from tests.cli.agent_files import LOOK_UP, PAID_BACK, REFUND, tool_runs
from tests.cli.chat_commands import scripted_flags, stored_conversation
from tests.cli.test_chat_tools import BOTH_TOOLS, TOOLS
from tests.terminal.pty_session import at_terminal

pytestmark = pytest.mark.needs("terminal")


def test_a_call_is_shown_and_a_call_that_needs_approval_is_asked_for(home: Path) -> None:
    Path("desk.py").write_text(TOOLS)
    model = scripted_flags(LOOK_UP, REFUND, PAID_BACK)
    with at_terminal("chat", *BOTH_TOOLS, *model, "-n", "mine", columns=120) as terminal:
        terminal.wait_for_prompt()
        listed = terminal.send_line("/tools")
        assert "look_up  Find an order." in listed
        assert "refund   Pay an order back." in listed
        assert "instructions changed" in terminal.send_line("/system Be brief.")
        request = terminal.send_line("/next pay it back")
        assert '"instructions": "Be brief."' in request
        assert '"name": "look_up"' in request
        terminal.type_keys("pay it back\r")
        shown = terminal.wait_for_text("decision:")
        assert 'assistant calls look_up {"order": "A1"}' in shown
        assert "look_up returned A1 cost 500 cents" in shown
        assert "refund needs approval" in shown
        assert "asks for refund" not in shown
        terminal.type_keys("approve\r")
        assert "refund returned paid 500 cents back for A1" in terminal.wait_for_text("Paid back.")
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
        assert "--tool desk.py:look_up --tool desk.py:refund" in " ".join(terminal.child.before.split())
    assert tool_runs() == ["look_up A1", "refund A1 500"]
    _, links = stored_conversation(home, "mine")
    assert {link.parameters["instructions"] for link in links} == {"Be brief."}
