"""Chats with an MCP server are killed around its calls, and continued: no call is performed twice.

A person decides on each call whose outcome is unknown after the kill, by stating its output.
"""

import json
import runpy
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.cli.chat_commands import scripted_flags, stored_conversation
from tests.command_runner import Convo
from tests.fork_server import ConvoProcess

pytestmark = [pytest.mark.needs("mcp"), pytest.mark.needs("linux")]

SERVER = """
from mcp.server import MCPServer

server = MCPServer("shop")

@server.tool(structured_output=False)
def pay(order: str) -> str:
    with open({log!r}, "a") as file:
        file.write(order + "\\n")
    return "paid " + order

if __name__ == "__main__":
    server.run("stdio")
"""

SETTINGS = """
[mcp.asks]
url = "{url}"
[mcp.pays]
url = "{url}"
approval = "never"
[mcp.process]
command = {command}
approval = "never"
"""

SERVERS = (*("pays", "asks") * 4, "process")


def calls(number: int, server: str) -> list[dict[str, Any]]:
    """Return a reply with two calls at once, one with a third call, and the answer."""

    def pay(name: str) -> dict[str, Any]:
        arguments = json.dumps({"order": f"{number}{name}"})
        return {"type": "function_call", "name": f"mcp__{server}__pay", "call_id": name, "arguments": arguments}

    return [{"output": [pay("a"), pay("b")]}, {"output": [pay("c")]}, {"text": "Paid."}]


MAX_EVENTS = {"chat": 20, "resume": 9}
"""Events of a command that a kill waits for at most: until the last output of a call, or until the next pause."""


class KilledChats:
    """Chats that are killed after a random number of events, and a short time."""

    def __init__(self, convo: Convo, home: Path, seed: str) -> None:
        self.convo, self.home, self.rng = convo, home, Random(seed)
        self.log, self.server = Path("calls.txt").absolute(), Path("shop.py").absolute()
        self.log.touch()
        self.server.write_text(SERVER.format(log=str(self.log)))
        self.killed = self.unknown = 0

    def write_settings(self, url: str) -> None:
        path = self.home / "config" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SETTINGS.format(url=url, command=json.dumps([sys.executable, str(self.server)])))

    def kill(self, *argv: str) -> None:
        """Kill a command after some of its events."""
        with ConvoProcess([*argv, "--jsonl"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            assert child.stdout
            for _ in range(self.rng.randrange(MAX_EVENTS[argv[0]])):
                child.stdout.readline()
            time.sleep(self.rng.uniform(0, 0.03))
            child.kill()
            child.communicate()
        self.killed += child.returncode == -9

    def run(self, number: int) -> None:
        """Kill one chat, or its resumption after an approval; continue it to its end, and check its calls."""
        name, server = f"run{number}", SERVERS[number % len(SERVERS)]
        # The answer takes longer than the test: however late the kill is, it finds a chat that was not paused.
        slow, fast = (scripted_flags(*calls(number, server), delay_s=delay_s) for delay_s in (300, 0))
        chat = ("chat", "--mcp", server, *slow, "-n", name, "pay")
        if server == "asks":
            assert self.convo(*chat).exit == 3
            self.kill("resume", name, "--approve", "all")
        else:
            self.kill(*chat)
        decisions: list[str] = []
        while True:
            got = self.convo("resume", name, "--json", *fast, *decisions)
            if got.exit != 3:
                break
            pending = got.json()["pending"]
            self.unknown += sum(call["unknown"] for call in pending)
            decisions = [
                word
                for call in pending
                for word in (
                    ("--output", f"{call['call_id']}=unknown") if call["unknown"] else ("--approve", call["call_id"])
                )
            ]
        error = got.json().get("error", {})
        assert got.exit == 0 or error["code"] in ("not_found", "state_fault"), got  # killed at its start or end
        if error.get("code") != "not_found":
            items, _ = stored_conversation(self.home, name)
            outputs = {item["call_id"]: item["output"] for item in items if item["type"] == "function_call_output"}
            assert outputs.keys() == {"a", "b", "c"}
            assert {outputs[id_] for id_ in outputs} <= {"unknown", *(f"paid {number}{id_}" for id_ in "abc")}

    def check(self) -> None:
        performed = Counter(self.log.read_text().split())
        assert set(performed.values()) == {1}, performed
        print(f"{self.killed} killed, {len(performed)} calls performed, {self.unknown} with an unknown outcome")


def kill_chats(times: int, seed: str, convo: Convo, home: Path) -> KilledChats:
    from tests.mcp_server import run_mcp_server

    chats = KilledChats(convo, home, seed)
    pay = runpy.run_path(str(chats.server))["pay"]
    with run_mcp_server() as mcp:
        mcp.server.tool(structured_output=False)(pay)
        chats.write_settings(mcp.url)
        for number in range(2 * times):  # some end before they are killed
            chats.run(number)
            if chats.killed == times:
                break
    chats.check()
    assert chats.killed == times
    return chats


def test_no_call_is_performed_twice_after_a_kill(convo: Convo, home: Path) -> None:
    kill_chats(4, "few", convo, home)


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_no_call_is_performed_twice_after_fifty_kills(part: int, convo: Convo, home: Path) -> None:
    assert kill_chats(50, f"part {part}", convo, home).unknown
