"""The reference says what the commands say."""

from tests.words.reference import PLACE, reference


def test_the_reference_is_what_the_commands_say_of_themselves() -> None:
    """Else: python -m tests.words.reference > .github/REFERENCE.md"""
    assert PLACE.read_text(encoding="utf-8") == reference()
