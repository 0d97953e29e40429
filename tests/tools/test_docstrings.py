"""The description of a function and of its fields, from a docstring in any of four styles."""

import dataclasses

import pytest

from convo.tools.schema import ParsedDocstring, parse_docstring


def parse(docstring: str, *names: str) -> ParsedDocstring:
    def documented() -> None: ...

    documented.__doc__ = docstring
    return parse_docstring(documented, names)


@pytest.mark.parametrize(
    ("docstring", "description"),
    [
        ("", ""),
        ("Look.", "Look."),
        ("Look.\n\nIn every town: also small ones.\n", "Look.\n\nIn every town: also small ones."),
        ("Returns the town.\n", "Returns the town."),
        ("Look.\n\nArgs:\n    q: x\n", "Look."),
        ("Look.\n\narguments:\n    q: x\n", "Look."),
        ("Look.\n\nParams:\n    q: x\n", "Look."),
        ("Look.\n\nParameters:\n    q: x\n", "Look."),
        ("Look.\n\nAttributes:\n    q: x\n", "Look."),
        ("Look.\n\nReturns:\n    x\n", "Look."),
        ("Look.\n\nReturn\n", "Look."),
        ("Look.\n\nRaises:\n    KeyError\n", "Look."),
        ("Look.\n\nYields:\n    x\n", "Look."),
        ("Look.\n\nExample:\n    x\n", "Look."),
        ("Look.\n\nNotes\n-----\nx\n", "Look."),
        ("Look.\n\nWarning:\n    x\n", "Look."),
        ("Look.\n\nSee Also\n--------\nx\n", "Look."),
        ("Look.\n\nTowns\n--\nx\n", "Look.\n\nTowns\n--\nx"),
        ("Look.\n\n---\nx\n", "Look.\n\n---\nx"),
        ("Look.\n\n:returns: x\n", "Look."),
        ("Look.\n\n:raises KeyError: x\n", "Look."),
        ("Look.\nq: x\n", "Look."),
        ("Look.\nr: x\n", "Look.\nr: x"),
    ],
)
def test_a_description_ends_before_the_field_list_and_the_first_heading(docstring: str, description: str) -> None:
    assert parse(docstring, "q").description == description


@pytest.mark.parametrize(
    ("docstring", "fields"),
    [
        ("Look.\n\nArgs:\n    q: where\n    days (int): how many\n", {"q": "where", "days": "how many"}),
        ("Look.\n\nArgs:\n    *q: where\n    **days: how many\n", {"q": "where", "days": "how many"}),
        ("Look.\n\nArgs:\n\tq: where\n", {"q": "where"}),
        ("Look.\n\nArgs:\n    q:\n        where\n        it is\n", {"q": "where it is"}),
        ("Look.\n\nArgs:\n    q: where\n\n        it is\n", {"q": "where it is"}),
        ("Look.\n\nArgs:\n    q: where\n     or: near\n", {"q": "where or: near"}),
        ("Look.\n\nArgs:\n    q: where\n    or: near\n", {"q": "where", "or": "near"}),
        ("Look.\n\nArgs:\n    q: where\n        days: how many\n", {"q": "where", "days": "how many"}),
        ("Look.\n\nArgs:\n    q: where\nThen more.\n    it is\n", {"q": "where"}),
        ("Look.\n\nArgs:\n    q: where\nReturns:\n    days: not a field\n", {"q": "where"}),
        ("Look.\n\nArgs:\nq: where\n", {}),
        ("Look.\n\nArgs:\n    q:\n", {}),
        ("Look.\n\nArgs:\n    q: where\n\nAttributes:\n    days: how many\n", {"q": "where", "days": "how many"}),
        ("Look.\n\n:param q: where\n    it is\n:param int days: how many\n", {"q": "where it is", "days": "how many"}),
        ("Look.\n\n:param *q: where\n:returns: q\n", {"q": "where"}),
        ("Look.\n\nParameters\n----------\nq : str\n    where\n    it is\ndays\n    how many\n",
         {"q": "where it is", "days": "how many"}),
        ("Look.\n\nAttributes\n---\nq\n\twhere\n", {"q": "where"}),
        ("Look.\n\nParameters\n---\nq\n    where\n\nReturns\n---\ndays\n    not a field\n", {"q": "where"}),
        ("Look.\n\nSee Also\n---\nq\n    not a field\n", {}),
        ("Look.\n\nOther Parameters\n---\nq\n    where\n", {"q": "where"}),
        ("Look.\n\nParameters:\n---\nq\n    where\n", {"q": "where"}),
        ("Look.\n\nArguments\n---\nq\n    where\n", {"q": "where"}),
        ("Look.\n\nArgs\n---\nq\n    where\n", {"q": "where"}),
        ("Look.\n\nParams\n---\nq\n    where\n", {"q": "where"}),
        ("Look.\n\nq:  where\n    it is\ndays:  how many\n", {"q": "where it is", "days": "how many"}),
        ("Look.\n\nq:  where\n\n    not a part of it\n", {"q": "where"}),
        ("Look.\n\nq:  where\nand: more\n    not a part of it\n", {"q": "where"}),
        ("Look.\n\nArgs:\n    q: where\n        and: more\n        days: how many\n",
         {"q": "where and: more", "days": "how many"}),
        ("Look.\n\nArgs:\n    q: where\n\nq: again\n", {"q": "where"}),
    ],
)  # fmt: skip
def test_each_field_has_its_description_on_one_line(docstring: str, fields: dict[str, str]) -> None:
    assert parse(docstring, "q", "days").fields == fields


def test_the_generated_docstring_of_a_dataclass_is_no_description() -> None:
    @dataclasses.dataclass
    class Town:
        name: str

    @dataclasses.dataclass
    class Place:
        """Place(s) on a map.

        name:  as on the map
        """

        name: str

    assert parse_docstring(Town) == ParsedDocstring("", {})
    assert parse_docstring(Place, ("name",)) == ParsedDocstring("Place(s) on a map.", {"name": "as on the map"})


def test_a_class_with_a_one_line_docstring_uses_it_as_its_description() -> None:
    class Town:
        """A town."""

    assert parse_docstring(Town).description == "A town."
