"""Writes the golden home: `python -m tests.golden.home`. Once a release, before its formats change; old ones stay.

It is what a killed server and a killed keeper leave behind, in the middle of things, on nodes that are declared.
"""

import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.kit.live import LiveServer, until
from tidegate.wire.events import FORMAT

FOLDER = Path(__file__).parent
NODES = ("--nodes", "2", "--cpus", "2", "--memory", "1G")
TAKEN = ("journal.db*", "keeper/record.*", "scripts/*", "output/*/*.out")
SCRIPT = "#!/bin/sh\ntest $TIDE_ATTEMPT = 2 || sleep 1000\n"
"""Runs when the home is left; tried again it completes."""


def homes() -> list[Path]:
    return sorted(FOLDER.glob("home-*.tar.xz"))


def unpack(packed: Path, home: Path) -> None:
    home.mkdir(mode=0o700)
    with tarfile.open(packed) as tar:
        tar.extractall(home, filter="data")
    (home / "keeper" / "boot").write_text("the boot of another machine")


def busy(home: Path) -> None:
    """Jobs 1 to 7, one of each kind; then server and keeper are killed."""
    with LiveServer(home, *NODES) as server:
        client = server.client()
        ended = [client.submit("true", name="done", key="a key"), client.submit("sh", "-c", "exit 3", tags={"a": "b"})]
        ended.append(client.submit("true", array="0-9%2", env={"GREETING": "hello"}))
        client.wait(*ended)
        command = [sys.executable, "-m", "tidegate.app.keeping", str(home / "journal.db")]
        subprocess.run(command, check=True, cwd=home, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        running = client.ask("POST", "/v1/jobs", {"script": SCRIPT, "name": "running", "notify": "true"})["id"]
        client.submit("true", after=[{"job": running}], name="after it")
        client.submit("true", held=True, array="5,7", name="held")
        client.submit("true", begin_ms=1 << 42, name="in the far future")
        until(lambda: client.show(running)["state"] == "RUNNING")
        server.kill()
        os.kill(server.keeper_pid(), signal.SIGKILL)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        busy(home)
        with tarfile.open(FOLDER / f"home-{FORMAT}.tar.xz", "w:xz") as tar:
            for path in sorted(path for pattern in TAKEN for path in home.glob(pattern)):
                tar.add(path, path.relative_to(home), filter=nobodys)
        with LiveServer(home, *NODES):
            pass  # the job that was left ends


def nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    return entry.replace(uid=0, gid=0, uname="", gname="", mtime=0, deep=False)


if __name__ == "__main__":
    main()
