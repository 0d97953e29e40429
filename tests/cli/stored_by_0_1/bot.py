"""The agents of the stored runs."""

from convo.agents.agent import Agent
from convo.tools.tool import tool


@tool(needs_approval=True)
def refund(order: str, cents: int) -> str:
    "Pay an order back."
    return f"paid {cents} cents back for {order}"


desk = Agent("desk", instructions="Help.", tools=(refund,))
