"""The pictures show the output of the program. To update them: python -m tests.docs.pictures"""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.command_runner import ROOT
from tests.docs.pictures import FOLDER, PICTURES, picture_conversations, picture_lines, render_picture

LARGEST = 12_000
"""Maximum size of a picture, in characters."""


def differing_lines(picture: str) -> list[str]:
    """The lines to compare, without the one that depends on durations: the fastest owner."""
    return [line for line in picture_lines(picture) if not line.startswith("fastest ")]


@pytest.mark.needs("terminal")
@pytest.mark.parametrize(
    "is_typed", [pytest.param(False, id="printed"), pytest.param(True, id="typed", marks=pytest.mark.full)]
)
def test_a_picture_shows_what_the_command_shows(is_typed: bool, tmp_path: Path) -> None:
    with picture_conversations(tmp_path) as server:
        for name, picture in PICTURES.items():
            if bool(picture.input) == is_typed:
                svg = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
                assert differing_lines(render_picture(picture, server)) == differing_lines(svg)


def test_pictures_are_small_well_formed_and_hold_nothing_that_runs() -> None:
    for path in FOLDER.glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert len(text) < LARGEST
        assert {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()} <= {
            *("svg", "title", "rect", "circle", "g", "text", "tspan")
        }


def test_the_readmes_pictures_are_there() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    paths = [Path(part.partition(")")[0]) for part in readme.split("](.github/pictures/")[1:]]
    assert paths
    assert all((FOLDER / name).is_file() for name in paths)
