"""Every command of the cookbook prints the output that its page shows."""

from pathlib import Path

import pytest

from tests.command_runner import ROOT
from tests.docs.pages import COOKBOOK, cookbook_pages, run_page
from tests.docs.transcript import blocks, differences

MARKS = {
    "approve-on-another-machine": [pytest.mark.needs("openssl")],
    "change-a-request-parameter": [pytest.mark.needs("weights")],
    "change-the-colors": [pytest.mark.needs("script")],
    "use-codex-claude-code-or-opencode-with-any-model": [pytest.mark.needs("curl")],
    "share-the-inspector-with-a-team": [pytest.mark.needs("curl"), pytest.mark.needs("openssl")],
    "add-state-to-ollama": [pytest.mark.needs("posix")],
    "see-what-another-program-sends": [pytest.mark.needs("posix")],
    "run-three-replicas-on-postgresql": [pytest.mark.needs("postgresql")],
}


@pytest.mark.needs("bash")
@pytest.mark.parametrize(
    "page", [pytest.param(one, marks=MARKS.get(one.stem, ()), id=one.stem) for one in cookbook_pages()]
)
def test_a_cookbook_page_shows_the_actual_output(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    with run_page(text, tmp_path) as (output, _):
        assert differences(text, output) == ""


def test_every_cookbook_page_is_in_the_list() -> None:
    readme = (COOKBOOK / "README.md").read_text(encoding="utf-8")
    for page in cookbook_pages():
        title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        assert title.endswith("?")
        assert f"[{title}]({page.name})" in readme
    assert ".github/cookbook/README.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_block_of_a_cookbook_page_is_run() -> None:
    for page in cookbook_pages():
        for block in blocks(page.read_text(encoding="utf-8")):
            assert block.name or block.language in ("console", "python")
