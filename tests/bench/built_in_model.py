"""Right answers of the built-in model to 50 plain questions, for several sampling defaults.

    python -m tests.bench.built_in_model

An answer is right if it contains one of the expected texts, in any case. Needs the weights of the built-in model.
"""

import asyncio
import re
import sys
import time
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory

from convo.history.items import item_text, user_message
from convo.models import local
from convo.models.base import ModelRequest
from convo.models.weights import BUILT_IN_WEIGHTS
from convo.runtime import random_id

QUESTIONS = {
    "What is the capital of France?": "Paris",
    "What is the capital of Japan?": "Tokyo",
    "What is the capital of Italy?": "Rome",
    "What is the capital of Germany?": "Berlin",
    "What is the capital of Spain?": "Madrid",
    "What is the capital of Canada?": "Ottawa",
    "What is the capital of Egypt?": "Cairo",
    "What is 2 + 2?": "4|four",
    "What is 5 + 3?": "8|eight",
    "What is 10 - 4?": "6|six",
    "What is 3 times 3?": "9|nine",
    "How many days are in a week?": "7|seven",
    "How many months are in a year?": "12|twelve",
    "How many hours are in a day?": "24|twenty-four",
    "How many minutes are in an hour?": "60|sixty",
    "How many legs does a spider have?": "8|eight",
    "How many legs does a dog have?": "4|four",
    "How many wheels does a bicycle have?": "2|two",
    "What color is the sky on a clear day?": "blue",
    "What color is grass?": "green",
    "What color do you get when you mix blue and yellow?": "green",
    "What is the opposite of hot?": "cold",
    "What is the opposite of big?": "small|little",
    "What is the opposite of up?": "down",
    "What is the plural of child?": "children",
    "What is the past tense of go?": "went",
    "What language is spoken in Brazil?": "Portuguese",
    "What language is spoken in Mexico?": "Spanish",
    "Who wrote Romeo and Juliet?": "Shakespeare",
    "Who wrote the theory of relativity?": "Einstein",
    "Who painted the Mona Lisa?": "Leonardo|da Vinci",
    "Who was the first president of the United States?": "Washington",
    "What planet do we live on?": "Earth",
    "What is the largest planet in the solar system?": "Jupiter",
    "What is the closest star to Earth?": "Sun",
    "What is the largest ocean?": "Pacific",
    "What is the longest river in Africa?": "Nile",
    "What is the tallest mountain in the world?": "Everest",
    "On which continent is Kenya?": "Africa",
    "On which continent is China?": "Asia",
    "What gas do plants take in from the air?": "carbon dioxide|CO2",
    "What is the chemical formula of water?": "H2O",
    "What is the freezing point of water in Celsius?": r"\b0\b|zero",
    "What is the boiling point of water in Celsius?": "100",
    "What animal says meow?": "cat",
    "What do bees make?": "honey",
    "What animal gives us milk?": "cow|goat",
    "What is the last month of the year?": "December",
    "What season comes after winter?": "spring",
    "Say hello in French.": "bonjour",
}

SETTINGS: Mapping[str, Mapping[str, float]] = {
    "temperature 0.2, top_p 0.9, penalty 1.05": {"temperature": 0.2, "top_p": 0.9, "repeat_penalty": 1.05},
    "greedy": {"temperature": 0, "repeat_penalty": 1.0},
    "greedy, penalty 1.1": {"temperature": 0, "repeat_penalty": 1.1},
    "greedy, penalty 1.2": {"temperature": 0, "repeat_penalty": 1.2},
}

MAX_OUTPUT_TOKENS = 160


async def answer(model: local.LocalModel, question: str) -> str:
    request = ModelRequest(
        BUILT_IN_WEIGHTS.name, (user_message(question),), parameters={"max_output_tokens": MAX_OUTPUT_TOKENS}
    )
    text = ""
    async with aclosing(model.respond(request)) as events:
        async for event in events:
            if event["type"] == "response.output_item.done":
                text += item_text(event["item"])
    return text


async def count_right(defaults: Mapping[str, float]) -> list[str]:
    """Return the questions with a wrong answer."""
    local.BUILT_IN_DEFAULTS.update(defaults)
    with TemporaryDirectory() as weights_folder:
        model = local.LocalModel(Path(weights_folder), random_id)
        try:
            return [
                question
                for question, expected in QUESTIONS.items()
                if not re.search(expected, await answer(model, question), re.IGNORECASE)
            ]
        finally:
            await model.aclose()


def main() -> None:
    names = sys.argv[1:] or list(SETTINGS)
    for name in names:
        started_at = time.monotonic()
        wrong = asyncio.run(count_right(SETTINGS[name]))
        seconds = time.monotonic() - started_at
        print(f"{name:<45} {len(QUESTIONS) - len(wrong)} of {len(QUESTIONS)} right, {seconds:.0f} s", flush=True)
        print(f"  wrong: {'; '.join(wrong)}", flush=True)


if __name__ == "__main__":
    main()
