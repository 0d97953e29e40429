"""The reference page equals the output of the help."""

from tests.docs.reference import REFERENCE, reference


def test_the_reference_is_what_the_commands_say_of_themselves() -> None:
    """To update the page: python -m tests.docs.reference > .github/REFERENCE.md"""
    assert REFERENCE.read_text(encoding="utf-8") == reference()
