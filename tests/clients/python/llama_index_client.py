# /// script
# requires-python = ">=3.11"
# dependencies = ["llama-index-llms-openai==0.8.3", "llama-index-core==0.14.25"]
# ///
"""LlamaIndex over the Responses API: an agent with its own loop; without tools a plain chat."""

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAIResponses
from workspace import BASE_URL, KEY, MODEL, PROMPT, TOOLS, report

llm = OpenAIResponses(model=MODEL, api_base=BASE_URL, api_key=KEY, context_window=128_000, max_retries=0)


async def run_agent() -> str:
    tools = [FunctionTool.from_defaults(function) for function in TOOLS]
    agent = FunctionAgent(tools=tools, llm=llm, system_prompt="You work in a folder.")
    return str(await agent.run(PROMPT))


def chat() -> str:
    # the default of LlamaIndex, 0.1, makes a small model choose other words in some runs
    return str(llm.chat([ChatMessage(PROMPT)], temperature=0).message.content)


report(asyncio.run(run_agent()) if TOOLS else chat())
