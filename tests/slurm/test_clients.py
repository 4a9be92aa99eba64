"""Real clients of Slurm, unmodified, by the acceptance scripts of `../shared/clients`.

Here those that need nothing that is not installed; `run_all.py` runs all of them, each in an environment of its own.
"""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import SHARED
from tests.kit.live import LiveServer
from tests.slurm.cluster import Cluster

CLIENTS = SHARED / "clients"
TWO = ("--nodes", "2", "--cpus", "2", "--memory", "1536M")
PATIENCE_S = 200


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not CLIENTS.exists():
        pytest.skip("real Slurm missing: ../shared/clients")
    folder = tmp_path_factory.mktemp("clients")
    with LiveServer(folder / "home", *TWO) as server:
        made = Cluster(server, folder / "user")
        for variable in ("SBATCH_MEM_PER_CPU", "SLURM_MEM_PER_CPU", "SALLOC_MEM_PER_CPU"):
            del made.env[variable]
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nextflow_replay", "submitit_array"])
def test_a_client(cluster: Cluster, name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(CLIENTS / f"{name}.py")], cwd=cluster.folder, env=cluster.env, capture_output=True,
        text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    assert "ACCEPTED" in done.stdout
