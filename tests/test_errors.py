"""The tree of errors as its file draws it."""

import re

import convo.errors


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    drawn: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (convo.errors.__doc__ or "").splitlines():
        found = re.match(r"    ([ │├└─]*)(\w+)(?:  |$)", line)
        if found and isinstance(getattr(convo.errors, found[2], None), type):
            above = [(depth, name) for depth, name in above if depth < found.start(2)]
            drawn[found[2]] = above[-1][1] if above else "Exception"
            above.append((found.start(2), found[2]))

    classes = [kind for kind in vars(convo.errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert drawn == {kind.__name__: kind.__bases__[0].__name__ for kind in classes}
