"""The commands `cover`, `draw` and `run`."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from tests.mutations.draw import Mutation, draw
from tests.mutations.run import cover, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    commands = parser.add_subparsers(dest="command", required=True)
    covering = commands.add_parser("cover", help="run the suite once; keep which test runs which line")
    covering.add_argument("folder", type=Path)
    drawing = commands.add_parser("draw", help="draw mutations, as JSON on stdout")
    drawing.add_argument("seed", type=int)
    drawing.add_argument("count", type=int)
    running = commands.add_parser("run", help="run the tests of each mutation; print the survivors")
    running.add_argument("folder", type=Path)
    running.add_argument("sample", type=Path)
    running.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    running.add_argument("--all-tests", action="store_true", help="without a time budget for each mutation")
    options = parser.parse_args()
    if options.command == "cover":
        return cover(options.folder.resolve())
    if options.command == "draw":
        json.dump(
            [asdict(mutation) for mutation in draw(Path.cwd(), options.seed, options.count)], sys.stdout, indent=1
        )
        return 0
    sample = [Mutation(**each) for each in json.loads(options.sample.read_text("utf-8"))]
    results = run(options.folder.resolve(), sample, jobs=options.jobs, all_tests=options.all_tests)
    survivors = [result for result in results if result.survived]
    for result in survivors:
        mutation = sample[result.number]
        change = f"{mutation.old.strip()} -> {mutation.new}".replace("\n", " ")
        print(f"{result.number}  {mutation.file}:{mutation.line}  {mutation.kind}: {change[:160]}")
    print(f"{len(results)} mutations, {len(results) - len(survivors)} killed, {len(survivors)} survived")
    return 0


if __name__ == "__main__":
    sys.exit(main())
