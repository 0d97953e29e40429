"""A seed determines the drawn mutations, and each of them changes the source."""

import ast
import shutil
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.command_runner import ROOT
from tests.mutations.draw import draw


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two of the packages: drawing from all of them takes seconds."""
    folder = tmp_path_factory.mktemp("root")
    for package in ("history", "usage"):
        shutil.copytree(ROOT / "convo" / package, folder / "convo" / package)
    return folder


def test_a_seed_draws_the_same_mutations_again_and_another_one_others(root: Path) -> None:
    first = draw(root, 1, 12)
    assert draw(root, 1, 12) == first
    assert draw(root, 2, 12) != first


def test_each_mutation_is_a_program_that_does_something_else(root: Path) -> None:
    for mutation in draw(root, 3, 60):
        before = (root / mutation.file).read_bytes()
        after = mutation.applied(before)
        assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(before)), mutation


def test_types_docstrings_and_imports_are_left_alone(root: Path) -> None:
    for mutation in draw(root, 4, 60):
        tree = ast.parse((root / mutation.file).read_bytes())
        nodes = [node for node in ast.walk(tree) if _is_left_alone(node)]
        assert not any(node.lineno <= mutation.line <= (node.end_lineno or 0) for node in nodes), mutation


def _is_left_alone(node: ast.AST) -> TypeGuard[ast.stmt]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
