"""A seed determines the drawn mutations, and each of them changes the source."""

import ast
from typing import TypeGuard

from tests.command_runner import ROOT
from tests.mutations.draw import draw


def test_a_seed_draws_the_same_mutations_again_and_another_one_others() -> None:
    first = draw(ROOT, 1, 12)
    assert draw(ROOT, 1, 12) == first
    assert draw(ROOT, 2, 12) != first


def test_each_mutation_is_a_program_that_does_something_else() -> None:
    for mutation in draw(ROOT, 3, 60):
        before = (ROOT / mutation.file).read_bytes()
        after = mutation.applied(before)
        assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(before)), mutation


def test_types_docstrings_and_imports_are_left_alone() -> None:
    for mutation in draw(ROOT, 4, 60):
        tree = ast.parse((ROOT / mutation.file).read_bytes())
        nodes = [node for node in ast.walk(tree) if _is_left_alone(node)]
        assert not any(node.lineno <= mutation.line <= (node.end_lineno or 0) for node in nodes), mutation


def _is_left_alone(node: ast.AST) -> TypeGuard[ast.stmt]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
