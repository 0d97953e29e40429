"""Collect the surface of the `convo` that this interpreter imports, and write it as JSON.

    python -m tests.surface.collect TREE OUT [PART ...]

`tests.surface.revisions` runs it in an empty folder, with TREE first on the import path.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import convo
from tests.surface import commands, conversations, http_api, sources, stored
from tests.surface.commands import RevisionShell
from tests.surface.document import Collection
from tests.surface.masks import Masks

Part = Callable[[Collection, Path, RevisionShell], None]

PARTS: dict[str, Part] = {
    "sources": lambda collection, tree, shell: sources.collect_sources(collection, tree),
    "imports": lambda collection, tree, shell: sources.collect_imports(collection, tree),
    "commands": lambda collection, tree, shell: commands.collect_commands(collection, shell),
    "completions": lambda collection, tree, shell: commands.collect_completions(collection, shell, tree),
    "settings": lambda collection, tree, shell: commands.collect_settings(collection, shell),
    "schemas": lambda collection, tree, shell: commands.collect_schemas(collection, shell),
    "rules": lambda collection, tree, shell: commands.collect_rules(collection, shell),
    "server": lambda collection, tree, shell: http_api.collect_server(collection, shell),
    "sessions": lambda collection, tree, shell: conversations.collect_sessions(collection, shell),
    "runs": lambda collection, tree, shell: conversations.collect_runs(collection, shell),
    "postgresql": lambda collection, tree, shell: stored.collect_postgresql(collection, shell),
}
"""The parts; each is collected in a separate CONVO_HOME and folder."""


def main(tree: Path, out: Path, *parts: str) -> None:
    """Collect `parts`, or all parts, and write the surface to `out`."""
    assert Path(str(convo.__file__)).is_relative_to(tree), f"{convo.__file__} is not of {tree}"
    folder = Path.cwd()
    collection = Collection(Masks({str(folder): "<folder>", str(Path(sys.prefix)): "<environment>"}))
    for name in parts or PARTS:
        target = folder / name
        target.mkdir()
        os.chdir(target)
        PARTS[name](collection, tree, RevisionShell(target / "home", target))
    out.write_text(json.dumps(collection.surface, indent=1, sort_keys=True), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
