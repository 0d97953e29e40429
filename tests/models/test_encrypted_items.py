"""Encrypted content is sent only to its issuer."""

from typing import Any

import pytest

from convo.errors import Unsupported
from convo.history.items import assistant_message, user_message
from convo.models.base import (
    NO_ISSUER,
    has_issuer_tag,
    hide_issuer_model,
    is_issued_by,
    make_issuer_tag,
    tag_encrypted_content,
    untag_item,
    untag_items,
    untag_tagged_items,
)

ISSUER_TAG = make_issuer_tag("openai", "gpt-5", "https://api.openai.com/v1", None, None)


def reasoning(seal: str | None = "gAAAA", **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "encrypted_content": seal, **more}


def test_tagged_encrypted_content_is_restored_for_its_issuer() -> None:
    assert untag_item(tag_encrypted_content(reasoning(), ISSUER_TAG), ISSUER_TAG, "openai/gpt-5") == reasoning()


@pytest.mark.parametrize(
    "other",
    [
        make_issuer_tag("openai", "gpt-5-mini", "https://api.openai.com/v1", None, None),
        make_issuer_tag("openai", "gpt-5", "https://eu.api.openai.com/v1", None, None),
        make_issuer_tag("openai", "gpt-5", "https://api.openai.com/v1", "org_2", None),
        make_issuer_tag("openai", "gpt-5", "https://api.openai.com/v1", None, "org_2"),
        make_issuer_tag("anthropic", "gpt-5", "https://api.openai.com/v1", None, None),
    ],
    ids=["model", "server", "organisation", "project", "provider"],
)
def test_reasoning_of_another_issuer_is_omitted_and_the_rest_stays(other: str) -> None:
    history = [user_message("hi"), tag_encrypted_content(reasoning(), other), assistant_message("hello")]

    assert untag_items(history, ISSUER_TAG, "openai/gpt-5") == (user_message("hi"), assistant_message("hello"))


def test_reasoning_without_an_issuer_is_omitted() -> None:
    assert untag_item(reasoning(), ISSUER_TAG, "openai/gpt-5") is None


@pytest.mark.parametrize(
    "item", [user_message("hi"), reasoning(None), {"type": "function_call", "call_id": "c", "name": "f"}]
)
def test_an_item_without_encrypted_content_is_unchanged(item: dict[str, Any]) -> None:
    assert tag_encrypted_content(item, ISSUER_TAG) == item
    assert untag_item(item, ISSUER_TAG, "openai/gpt-5") == item


def test_a_compaction_of_another_issuer_is_refused_with_the_issuers_name() -> None:
    window = tag_encrypted_content(
        {"type": "compaction", "encrypted_content": "x"}, make_issuer_tag("openai", "gpt-5:mini", "https://a")
    )

    with pytest.raises(Unsupported, match="a compaction encrypted by another model") as error:
        untag_item(window, ISSUER_TAG, "openai/gpt-5")

    assert "openai/gpt-5%3Amini" in error.value.hint


def test_a_compaction_without_an_issuer_is_sent_unchanged() -> None:
    window = {"type": "compaction", "encrypted_content": "x"}

    assert untag_item(window, ISSUER_TAG, "openai/gpt-5") == window


def test_a_server_with_its_own_encryption_gets_reasoning_without_an_issuer() -> None:
    own, others = (
        tag_encrypted_content(reasoning("a"), ISSUER_TAG),
        tag_encrypted_content(reasoning("b"), make_issuer_tag("deepseek", "v4", "https://d")),
    )
    history = [reasoning("own"), own, others, user_message("hi")]

    assert untag_tagged_items(history, ISSUER_TAG, "openai") == [reasoning("own"), reasoning("a"), user_message("hi")]


def test_a_tag_that_names_no_model_is_accepted_from_its_issuer_alone() -> None:
    hidden = hide_issuer_model(tag_encrypted_content(reasoning("a:b:c"), ISSUER_TAG))
    other = make_issuer_tag("openai", "gpt-5-mini", "https://api.openai.com/v1", None, None)

    assert "gpt-5" not in hidden["encrypted_content"]
    assert hidden["encrypted_content"].startswith("convo2:")
    assert untag_item(hidden, ISSUER_TAG, "openai/gpt-5") == reasoning("a:b:c")
    assert untag_item(hidden, other, "openai/gpt-5-mini") is None
    assert hide_issuer_model(hidden) == hidden
    assert [is_issued_by(hidden, ISSUER_TAG), is_issued_by(hidden, other), has_issuer_tag(hidden)] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("item", [user_message("hi"), reasoning(None), reasoning("gAAAA")])
def test_an_item_without_a_tag_has_no_issuer(item: dict[str, Any]) -> None:
    assert hide_issuer_model(item) == item
    assert not has_issuer_tag(item)
    assert not is_issued_by(item, ISSUER_TAG)
    assert not is_issued_by(item, NO_ISSUER)


def test_the_format_of_a_tag_is_read_by_every_later_version() -> None:
    """Stored items contain these tags."""
    tag = make_issuer_tag("openai", "gpt-5:mini", "https://a", None, "proj")

    assert str(tag) == "convo1:openai/gpt-5%3Amini:bd18d0b91a4a:"
    assert tag.opaque == "convo2:70b745e0c922df445c2c5a58:"


def test_a_compaction_item_whose_tag_names_no_model_is_refused_with_an_alternative() -> None:
    other = make_issuer_tag("openai", "gpt-5:mini", "https://a")
    item = hide_issuer_model(tag_encrypted_content({"type": "compaction", "encrypted_content": "x"}, other))

    with pytest.raises(Unsupported) as error:
        untag_item(item, ISSUER_TAG, "openai/gpt-5")

    assert error.value.hint == "continue with the model that made it, or fork from before the encrypted item"
    assert error.value.param == "input"


def test_untagged_reasoning_is_sent_to_a_server_that_may_have_issued_it() -> None:
    tagged = tag_encrypted_content(reasoning("b"), make_issuer_tag("deepseek", "v4", "https://d"))

    assert untag_items([reasoning("own"), tagged], ISSUER_TAG, "openai/gpt-5", keep_untagged=True) == (
        reasoning("own"),
    )
