"""MCP servers of a chat: their tools are tools of its agent, so calls are approved and recorded as those of functions.

A tool has the same name for the model as in `mcp_tools`: `mcp__SERVER__TOOL`.
"""

import asyncio
from collections.abc import Mapping, Sequence

from convo.history.items import Json
from convo.responses_api.mcp_client import McpConnection, McpTarget
from convo.responses_api.mcp_tools import describe_result, make_function_name, make_parameters
from convo.secrets import redact_server_address
from convo.tools.tool import Context, InvalidArguments, ServerTool, Tool, read_arguments


class McpToolServers:
    """The servers of one chat, by name."""

    def __init__(self, targets: Mapping[str, McpTarget]) -> None:
        self._targets = targets
        self._connections = {name: McpConnection(name, target) for name, target in targets.items()}

    async def list_tools(self, context: Context) -> Sequence[Tool]:
        """Return the tools that may be called. Raises EndpointFault, and RequestRefused without the package `mcp`."""
        lists = await asyncio.gather(*(connection.list_tools() for connection in self._connections.values()))
        return [
            self._make_tool(name, listed)
            for name, tools in zip(self._targets, lists, strict=True)
            for listed in tools
            if self._targets[name].allows(listed["name"])
        ]

    def _make_tool(self, server: str, listed: Mapping[str, Json]) -> Tool:
        async def run(context: Context, arguments: str) -> Json:
            parsed = read_arguments(tool, arguments)
            if isinstance(parsed, InvalidArguments):
                return parsed.message
            result = await self._connections[server].call_tool(listed["name"], parsed)
            return list(result.parts) or describe_result(result._asdict())

        approved = self._targets[server].approved_tools
        tool = Tool(
            name=make_function_name(server, listed["name"]),
            description=str(listed.get("description") or ""),
            parameters=make_parameters(listed),
            run=run,
            strict=False,
            needs_approval=approved is not None and listed["name"] not in approved,
            origin=ServerTool(server, listed["name"], list(self._targets).index(server)),
        )
        return tool

    def states(self) -> Mapping[str, str]:
        """Return for each server its address, and whether it is connected."""
        return {
            name: f"{redact_server_address(target.url or ' '.join(target.command))}"
            f" ({'connected' if self._connections[name].is_open else 'not connected'})"
            for name, target in self._targets.items()
        }

    async def aclose(self) -> None:
        await asyncio.gather(*(connection.aclose() for connection in self._connections.values()))
