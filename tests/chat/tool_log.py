"""Tools that record their calls."""

from typing import Any

from convo.tools.tool import Tool, tool


class ToolLog:
    """Creates tools; `ran` contains their names in the order in which they ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def tool(self, name: str, *, output: str | None = None, **settings: Any) -> Tool:
        def run() -> str:
            self.ran.append(name)
            return output or f"{name} done"

        return tool(name=name, **settings)(run)
