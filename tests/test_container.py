"""The Dockerfile and the compose file: their paths exist, and their commands serve from PostgreSQL."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

from convo.config.settings import ServeSettings
from tests.command_runner import ROOT
from tests.databases import new_database

FOLDER = ROOT / ".github" / "container"
COMPOSE = (FOLDER / "compose.yaml").read_text(encoding="utf-8")


def read_stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage of the Dockerfile, each as its name and its arguments."""
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    stages: list[list[tuple[str, str]]] = []
    for name, arguments in lines:
        stages += [[]] if name == "FROM" else []
        stages[-1].append((name, arguments))
    return stages


def read_image() -> dict[str, str]:
    """Return the instructions of the last stage by name."""
    return dict(read_stages()[-1])


def run_build_stage(folder: Path) -> Path:
    """Run the first stage, with `folder` as the root of its file system; return the folder of the commands."""
    for name, arguments in read_stages()[0]:
        if name == "COPY":
            *sources, target = arguments.split()
            (folder / target[1:]).mkdir(parents=True, exist_ok=True)
            for source in (ROOT / source for source in sources):
                if source.is_dir():
                    shutil.copytree(source, folder / target[1:], dirs_exist_ok=True)
                else:
                    shutil.copy(source, folder / target[1:])
        elif name == "RUN":
            script = re.sub(r"/(src|opt)\b", rf"{folder}/\1", arguments)
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(["sh", "-c", script], env={**os.environ, "PATH": path}, check=True, capture_output=True)
    return folder / "opt/convo/bin"


def test_the_paths_ports_and_volumes_of_the_container_files_agree() -> None:
    image, compose = read_image(), yaml.safe_load(COMPOSE)
    convo, database = compose["services"]["convo"], compose["services"]["database"]
    copied = [arguments.split()[:-1] for name, arguments in read_stages()[0] if name == "COPY"]

    assert all((ROOT / source).exists() for sources in copied for source in sources)
    context = (FOLDER / convo["build"]["context"]).resolve()
    assert (context, context / convo["build"]["dockerfile"]) == (ROOT, FOLDER / "Dockerfile")
    assert convo["ports"] == [f"127.0.0.1:{image['EXPOSE']}:{image['EXPOSE']}"]
    assert convo["volumes"] == [f"convo:{image['VOLUME']}"]
    assert f"CONVO_HOME={image['VOLUME']}" in image["ENV"]
    assert image["USER"] == image["RUN"].split()[-1] != "root"
    assert set(convo["depends_on"]) <= set(compose["services"])
    assert set(compose["volumes"]) == {volume.partition(":")[0] for s in (convo, database) for volume in s["volumes"]}
    user = database["environment"]
    assert float(convo["stop_grace_period"].removesuffix("s")) > ServeSettings().grace_s
    assert convo["environment"]["CONVO_STORE"] == f"postgresql://{user['POSTGRES_USER']}@database/{user['POSTGRES_DB']}"


def post(port: str, key: str) -> Any:
    body = json.dumps({"model": "scripted/echo", "input": "hi"}).encode()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    with urlopen(Request(f"http://127.0.0.1:{port}/v1/responses", body, headers), timeout=30) as response:
        return json.load(response)


@pytest.mark.needs("postgresql")
@pytest.mark.parametrize("is_installed", [False, pytest.param(True, marks=pytest.mark.full)])
def test_the_commands_of_the_container_serve_from_postgresql(is_installed: bool, tmp_path: Path) -> None:
    """The long variant also runs the command that installs convo."""
    image = read_image()
    commands = run_build_stage(tmp_path) if is_installed else Path(sys.executable).parent
    environ = {"PATH": f"{commands}:/usr/bin:/bin", "CONVO_HOME": str(tmp_path), "CONVO_STORE": new_database()}

    def in_container(*command: str) -> list[str]:
        program, *arguments = [text.replace(image["VOLUME"], str(tmp_path)) for text in command]
        return [str(commands / program), *arguments]

    def is_healthy(port: str) -> bool:
        check = json.loads(image["HEALTHCHECK"].partition("CMD ")[2].replace(f":{image['EXPOSE']}/", f":{port}/"))
        return subprocess.run(in_container(*check), env=environ, capture_output=True, check=False).returncode == 0

    entrypoint, command = json.loads(image["ENTRYPOINT"]), json.loads(image["CMD"])
    found = re.search(r"compose run .* convo (serve --new-key .*)", COMPOSE)
    assert found
    new_key = in_container(*entrypoint, *shlex.split(found[1]))
    key = subprocess.run(new_key, env=environ, capture_output=True, encoding="utf-8", check=True).stdout.strip()
    serve = in_container(*entrypoint, *command, "--port", "0")
    with subprocess.Popen(serve, env=environ, stderr=subprocess.PIPE, encoding="utf-8") as server:
        assert server.stderr
        try:
            line = server.stderr.readline()
            match = re.match(r"convo serves http://0\.0\.0\.0:(\d+)/v1, store postgresql://", line)
            assert match, line
            assert is_healthy(match[1])
            assert post(match[1], key)["status"] == "completed"
            with pytest.raises(HTTPError, match="401"):
                post(match[1], "convo_other")
        finally:
            server.terminate()
    assert server.returncode == 0
    assert not is_healthy(match[1])
