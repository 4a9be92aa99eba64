"""A server like the cluster on which the golden answers were taken: four nodes of four processors, with its queue."""

import os
import subprocess
import sys
from pathlib import Path

from tests.kit.live import LiveServer, until
from tests.slurm.golden import Said

SCRIPTS = {
    "ok.sh": "#!/bin/bash\nsrun echo ok\n",
    "fail.sh": "#!/bin/bash\nexit 3\n",
    "arr.sh": "#!/bin/bash\n[ $SLURM_ARRAY_TASK_ID = 2 ] && exit 7\nexit 0\n",
    "sleep.sh": "#!/bin/bash\nsleep 600\n",
    "nosheb.sh": "true\n",
    "dos.sh": "#!/bin/bash\r\ntrue\r\n",
    "empty.sh": "",
    "bin.sh": "\x7fELF\x01\x02",
    "env.sh": "#!/bin/bash\nenv > $OUT\n",
    "rq.sh": '#!/bin/bash\nif [ -z "$SLURM_RESTART_COUNT" ]; then sleep 600; fi\nenv | grep SLURM_RESTART\n',
}
OPTIONS = ("--nodes", "4", "--cpus", "4", "--memory", "4000M", "--gpus", "4", "--policy", "easy")
PATIENCE_S = 120


class Cluster:
    """Commands as a shell would run them, in a folder with the scripts."""

    def __init__(self, server: LiveServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.bin = folder.parent / "bin"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in SCRIPTS.items():
            (folder / name).write_text(text, newline="")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "TIDE"))}
        self.env = {
            **kept, "PATH": f"{self.bin}:{os.environ['PATH']}", "TIDEGATE_HOME": str(server.home),
            "SBATCH_MEM_PER_CPU": "100", "SLURM_MEM_PER_CPU": "100", "SALLOC_MEM_PER_CPU": "100",
        }  # fmt: skip
        install = [sys.executable, "-m", "tidegate.cli.main", "slurm", "install", str(self.bin)]
        subprocess.run(install, env=self.env, check=True, capture_output=True)

    def run(self, command: str, said: str = "", **env: str) -> Said:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env={**self.env, **env}, input=said.encode(), capture_output=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        return Said(command, out, err, done.returncode)

    def submit(self, words: str) -> int:
        done = self.run(f"sbatch --parsable {words}")
        assert done.code == 0, done.err
        return int(done.out)

    def burn(self, until_id: int) -> None:
        """Uses up job numbers, so that the next is this one."""
        while True:
            job = self.submit("-H --wrap=true -J filler -o /dev/null")
            self.run(f"scancel {job}")
            assert job < until_id, f"job {job} is past {until_id}"
            if job == until_id - 1:
                return

    def ended(self, *jobs: int) -> None:
        self.server.client().wait(*jobs)

    def state(self, job: int) -> str:
        return self.run(f"squeue -h -t all -o %T -j {job},{job}").out.split("\n")[0]

    def runs(self, job: int) -> None:
        until(lambda: self.state(job) == "RUNNING")


def the_queue(cluster: Cluster) -> None:
    """The queue of the golden answers, under the same numbers; job 17, whose dependency can never be met, has ended
    here, and 12 waits for its time by `--begin`, where a requeued job is held for two minutes there."""
    submit, burn = cluster.submit, cluster.burn
    burn(3)
    assert submit("-J tmo -t 1 -o tmo.out --wrap='echo start; sleep 300'") == 3
    burn(12)
    assert submit("-J rq --begin=now+2hours --wrap=true") == 12
    filling = submit("-J filling -c3 --wrap='sleep 300'")  # the next goes to the second node
    cluster.runs(filling)
    assert submit("-J cancelme --wrap='sleep 300'") == 14
    assert submit("-J dep -d afterok:14 ok.sh") == 15
    burn(18)
    assert submit("-J held -H ok.sh") == 18
    assert submit("-J big -N4 -n4 --exclusive sleep.sh") == 19
    assert submit("-J gpu -c2 --gres=gpu:3 --wrap='sleep 600'") == 20
    assert submit("-J later --begin=now+1hour --wrap=true") == 21
    assert submit("-J parr -H --array=1-100:3%5 ok.sh") == 22
    cluster.runs(3)
    cluster.runs(14)
    cluster.run(f"scancel {filling}")
    cluster.ended(filling)
