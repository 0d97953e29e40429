"""Send the requests of transcripts, and write the files with the actual responses."""

import sys
import tempfile
from pathlib import Path

from tests.server import transcripts
from tests.server.gateway import run_gateway

for name in sys.argv[1:] or transcripts.NAMES:
    path = transcripts.FOLDER / f"{name}.txt"
    text = path.read_text("utf-8")
    description = text[: text.index("> ")]
    with tempfile.TemporaryDirectory() as folder, run_gateway(Path(folder) / "served") as gateway:
        client = transcripts.Client(gateway)
        exchanges = [client.send(exchange) for exchange in transcripts.read_exchanges(path)]
    path.write_text(description + "\n\n".join(map(str, exchanges)) + "\n", "utf-8")
