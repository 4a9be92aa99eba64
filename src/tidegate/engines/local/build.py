"""Finding the launcher: from the wheel, from this user's cache, compiled now, or the interpreted one."""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
NAME = "tide-launcher"
SOURCE = HERE / "launcher.c"
FALLBACK = HERE / "launcher.py"
FLAGS = ("-O2", "-Wall", "-D_FORTIFY_SOURCE=2")
COMPILE_S_MAX = 60


class LauncherError(Exception):
    """What the compiler said, in a line."""


def find_launcher() -> Path:
    """The quickest launcher that this machine has; the interpreted one does the same at five times the price."""
    packaged = HERE / NAME
    if os.access(packaged, os.X_OK):
        return packaged
    if os.environ.get("TIDEGATE_PURE", "") not in {"", "0"}:
        return FALLBACK
    made_of = hashlib.sha256(SOURCE.read_bytes() + repr((FLAGS, platform.machine())).encode()).hexdigest()[:16]
    try:
        cached = cache() / f"{NAME}-{made_of}"
        if not os.access(cached, os.X_OK):
            compile_launcher(cached)
    except (OSError, RuntimeError, LauncherError):
        return FALLBACK
    return cached


def cache() -> Path:
    """Only this user may put anything there: root runs what it finds."""
    top = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    place = Path(top) / "tidegate"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = place.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise LauncherError(f"{place} can be written by others")
    return place


def compile_launcher(target: Path) -> None:
    """Static where the machine has the libraries for it: that starts quicker, and no library can be put under it."""
    compiler = (os.environ.get("CC") or "cc").split()
    if shutil.which(compiler[0]) is None:
        raise LauncherError(f"no C compiler ({compiler[0]}) found")
    with tempfile.TemporaryDirectory(dir=target.parent) as place:
        made, said = Path(place) / NAME, ""
        for static in (["-static"], []):
            try:
                done = subprocess.run(
                    [*compiler, *FLAGS, *static, "-o", str(made), str(SOURCE)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=COMPILE_S_MAX,
                    check=False,
                    text=True,
                )
            except subprocess.TimeoutExpired as error:
                raise LauncherError(str(error)) from error
            if done.returncode == 0:
                made.chmod(0o755)
                made.replace(target)
                return
            said = done.stdout.strip()
    raise LauncherError((said or "the compiler said nothing").splitlines()[-1])
