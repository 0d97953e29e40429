# /// script
# requires-python = ">=3.11"
# dependencies = ["pydantic-ai-slim[openai]==2.68.0"]
# ///
"""pydantic-ai over the Responses API: an agent with its own loop."""

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from workspace import BASE_URL, KEY, MODEL, PROMPT, TOOLS, report

client = AsyncOpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0)
model = OpenAIResponsesModel(MODEL, provider=OpenAIProvider(openai_client=client))
report(Agent(model, tools=TOOLS).run_sync(PROMPT).output)
