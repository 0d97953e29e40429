"""The five tools of the task, as plain functions, and what a client is told by its environment.

A client prints the model's final text and the names of the tools that ran as JSON, in its last line.
"""

import json
import os
import subprocess
from pathlib import Path

BASE_URL, MODEL = os.environ["BASE_URL"], os.environ["MODEL"]
HAS_TOOLS = os.environ["TASK"] == "tools"
PROMPT = "Read notes.txt and do as it says." if HAS_TOOLS else "Say hello."
KEY = "any"
names: list[str] = []


def read_file(path: str) -> str:
    """Return the text of a file."""
    names.append("read_file")
    return Path(path).read_text(encoding="utf-8")


def search_files(text: str) -> str:
    """Return the names of the files that contain a text."""
    names.append("search_files")
    found = (file for file in Path().glob("*.txt") if text in file.read_text(encoding="utf-8"))
    return ", ".join(sorted(file.name for file in found))


def write_file(path: str, text: str) -> str:
    """Write a text to a file."""
    names.append("write_file")
    return f"{Path(path).write_text(text, encoding='utf-8')} characters"


def run_command(command: str) -> str:
    """Run a command in a shell and return its output."""
    names.append("run_command")
    return subprocess.run(command, shell=True, capture_output=True, encoding="utf-8", check=True).stdout


def finish(answer: int) -> str:
    """Finish the task with an answer."""
    names.append("finish")
    return f"accepted {answer}"


FUNCTIONS = [read_file, search_files, write_file, run_command, finish]
TOOLS = FUNCTIONS if HAS_TOOLS else []


def report(text: object) -> None:
    print(json.dumps({"text": text, "calls": names}))
