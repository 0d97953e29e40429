"""Who is given a seal again."""

from typing import Any

import pytest

from convo.errors import Unsupported
from convo.items import assistant, user
from convo.models.sealed import all_opened, at_its_owner, maker, opened, signed

OURS = maker("openai", "gpt-5", "https://api.openai.com/v1", None, None)


def reasoning(seal: str | None = "gAAAA", **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "encrypted_content": seal, **more}


def test_a_seal_comes_back_to_its_maker_as_it_was() -> None:
    assert opened(signed(reasoning(), OURS), OURS, "openai/gpt-5") == reasoning()


@pytest.mark.parametrize(
    "other",
    [
        maker("openai", "gpt-5-mini", "https://api.openai.com/v1", None, None),
        maker("openai", "gpt-5", "https://eu.api.openai.com/v1", None, None),
        maker("openai", "gpt-5", "https://api.openai.com/v1", "org_2", None),
        maker("openai", "gpt-5", "https://api.openai.com/v1", None, "org_2"),
        maker("anthropic", "gpt-5", "https://api.openai.com/v1", None, None),
    ],
    ids=["model", "server", "organisation", "project", "provider"],
)
def test_reasoning_of_another_maker_is_left_out_and_the_rest_stays(other: str) -> None:
    history = [user("hi"), signed(reasoning(), other), assistant("hello")]

    assert all_opened(history, OURS, "openai/gpt-5") == (user("hi"), assistant("hello"))


def test_reasoning_that_names_no_maker_is_left_out() -> None:
    assert opened(reasoning(), OURS, "openai/gpt-5") is None


@pytest.mark.parametrize("item", [user("hi"), reasoning(None), {"type": "function_call", "call_id": "c", "name": "f"}])
def test_what_has_no_seal_is_left_alone(item: dict[str, Any]) -> None:
    assert signed(item, OURS) == item
    assert opened(item, OURS, "openai/gpt-5") == item


def test_a_sealed_history_of_another_maker_is_refused_and_the_maker_named() -> None:
    window = signed({"type": "compaction", "encrypted_content": "x"}, maker("openai", "gpt-5:mini", "https://a"))

    with pytest.raises(Unsupported, match="a compaction that another model sealed") as refused:
        opened(window, OURS, "openai/gpt-5")

    assert "openai/gpt-5%3Amini" in refused.value.hint


def test_a_sealed_history_that_names_no_maker_is_left_to_the_server() -> None:
    window = {"type": "compaction", "encrypted_content": "x"}

    assert opened(window, OURS, "openai/gpt-5") == window


def test_a_server_that_hands_out_its_own_seals_gets_those_that_name_nobody() -> None:
    mine, others = signed(reasoning("a"), OURS), signed(reasoning("b"), maker("deepseek", "v4", "https://d"))
    history = [reasoning("own"), mine, others, user("hi")]

    assert at_its_owner(history, OURS, "openai") == [reasoning("own"), reasoning("a"), user("hi")]
