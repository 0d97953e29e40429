"""The agents of the stored runs."""

from convo.agents import Agent
from convo.tools import tool


@tool(needs_approval=True)
def refund(order: str, cents: int) -> str:
    "Pay an order back."
    return f"paid {cents} cents back for {order}"


desk = Agent("desk", instructions="Help.", tools=(refund,))
