# /// script
# requires-python = ">=3.11"
# dependencies = ["llm==0.36"]
# ///
"""llm over chat completions, with the settings of its file extra-openai-models.yaml."""

import json
import os
from pathlib import Path

import llm
from workspace import BASE_URL, KEY, MODEL, PROMPT, TOOLS, report

folder = Path(os.environ["LLM_USER_PATH"])
folder.mkdir()
extra = [{"model_id": "mine", "model_name": MODEL, "api_base": BASE_URL, "supports_tools": True}]
(folder / "extra-openai-models.yaml").write_text(json.dumps(extra), encoding="utf-8")
model = llm.get_model("mine")
model.key = KEY
report(model.chain(PROMPT, tools=TOOLS).text())
