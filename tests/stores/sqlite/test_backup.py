"""A backup names its reason when it cannot be made, and overwrites no file."""

from pathlib import Path

import pytest

from convo.errors import InvalidUsage, NotFound
from convo.stores.sqlite.backup import backup_database, new_database


def test_a_backup_of_no_database_suggests_creating_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        backup_database(tmp_path / "none.db", tmp_path / "copy.db", lambda *_: None)
    assert caught.value.hint == 'convo chat "hello" creates one'
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_created_early", [True, False], ids=["before the copy", "during the copy"])
def test_a_target_that_exists_is_not_overwritten(is_created_early: bool, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    if is_created_early:
        target.write_text("kept")
    with pytest.raises(InvalidUsage) as caught, new_database(target):
        target.write_text("kept")
    assert caught.value.message == f"{target} already exists and is not overwritten"
    assert caught.value.hint == "name a file that does not exist"
    assert list(tmp_path.iterdir()) == [target]
    assert target.read_text() == "kept"
