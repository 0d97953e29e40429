"""Print the differences of two revisions.

    python -m tests.surface BEFORE AFTER [--no-additions] [--parts PART,...]
    python -m tests.surface REVISION > surface.json

Each is a git revision, a folder with a checkout, or a file that the second form wrote. It exits with 1 if something
was removed or changed; an addition is listed and allowed, unless --no-additions is given.
"""

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.surface.difference import difference_lines, differences, is_refused
from tests.surface.revisions import surface_of


def main() -> int:
    """Compare two surfaces or write one; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.surface", description=__doc__)
    parser.add_argument("revisions", nargs="+", metavar="REVISION")
    parser.add_argument("--no-additions", action="store_true", help="refuse additions as well")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=(), help="collect these parts only")
    arguments = parser.parse_args()
    if len(arguments.revisions) > 2:
        parser.error("one revision to write, or two to compare")
    with ThreadPoolExecutor(2) as pool:
        surfaces = list(pool.map(lambda side: surface_of(side, arguments.parts), arguments.revisions))
    if len(surfaces) == 1:
        json.dump(surfaces[0], sys.stdout, indent=1)
        return 0
    found = differences(*surfaces)
    for line in difference_lines(found):
        print(line)
    return int(is_refused(found, additions=arguments.no_additions))


if __name__ == "__main__":
    sys.exit(main())
