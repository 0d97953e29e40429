# /// script
# requires-python = ">=3.11"
# dependencies = ["langchain-openai==1.7.4"]
# ///
"""langchain-openai over the Responses API, stateless: a loop of model calls and tool messages."""

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from workspace import BASE_URL, KEY, MODEL, PROMPT, TOOLS, report

tools = {function.__name__: tool(function) for function in TOOLS}
chat = ChatOpenAI(model=MODEL, base_url=BASE_URL, api_key=KEY, use_responses_api=True, streaming=True)
model = chat.bind_tools(list(tools.values())) if tools else chat
messages = [HumanMessage(PROMPT)]
while True:
    answer = model.invoke(messages)
    messages.append(answer)
    if not answer.tool_calls:
        break
    for call in answer.tool_calls:
        output = tools[call["name"]].invoke(call["args"])
        messages.append(ToolMessage(output, tool_call_id=call["id"]))
report(answer.text)
