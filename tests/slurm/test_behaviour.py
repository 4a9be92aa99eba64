"""What scripts rely on, end to end: signals, dependencies, exports, steps, terminals; on a server with two nodes."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit.live import LiveServer, until
from tests.slurm.cluster import Cluster

TWO = ("--nodes", "2", "--cpus", "2", "--memory", "1536M")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    with LiveServer(folder / "home", *TWO) as server:
        yield Cluster(server, folder / "user")


def script(cluster: Cluster, name: str, text: str) -> str:
    (cluster.folder / name).write_text(text)
    return name


def output(cluster: Cluster, name: str) -> str:
    file = cluster.folder / name
    return file.read_text() if file.exists() else ""


# -- signals -------------------------------------------------------------------------------------------------

TRAPS = "#!/bin/bash\ntrap 'echo caught; exit 9' USR2\necho ready\nwhile :; do sleep 0.05; done\n"
STEP = (
    "#!/bin/bash\ntrap 'echo batch' USR2\n"
    "srun bash -c \"trap 'echo step; exit 9' USR2; echo ready; while :; do sleep 0.05; done\"\n"
    "echo rest $?\n"
)


def test_a_signal_before_the_limit_goes_to_the_batch_shell(cluster: Cluster) -> None:
    job = cluster.submit(f"--signal=B:USR2@599 -t 10 -o batch.out {script(cluster, 'traps.sh', TRAPS)}")
    cluster.ended(job)
    assert output(cluster, "batch.out") == "ready\ncaught\n"
    assert cluster.run(f"sacct -X -n -P -o State,ExitCode -j {job}").out == "FAILED|9:0\n"


def test_a_signal_before_the_limit_goes_to_the_steps(cluster: Cluster) -> None:
    job = cluster.submit(f"--signal=USR2@598 -t 10 -o steps.out {script(cluster, 'step.sh', STEP)}")
    cluster.ended(job)
    said = output(cluster, "steps.out")
    assert "step" in said
    assert "rest 9" in said
    assert "batch" not in said


@pytest.mark.parametrize(("words", "wanted"), [("-b -s USR2", "caught"), ("--signal=12 --batch", "caught")])
def test_scancel_sends_signals(cluster: Cluster, words: str, wanted: str) -> None:
    job = cluster.submit(f"-o sent.%j {script(cluster, 'traps.sh', TRAPS)}")
    until(lambda: "ready" in output(cluster, f"sent.{job}"))
    assert cluster.run(f"scancel {words} {job}").code == 0
    cluster.ended(job)
    assert wanted in output(cluster, f"sent.{job}")


def test_a_job_is_stopped_and_goes_on(cluster: Cluster) -> None:
    job = cluster.submit("-o beat.%j --wrap='while :; do echo beat; sleep 0.05; done'")
    until(lambda: output(cluster, f"beat.{job}"))
    assert cluster.run(f"scontrol suspend {job}").code == 0

    def stopped() -> bool:
        before = output(cluster, f"beat.{job}")
        select.select([], [], [], 0.3)
        return output(cluster, f"beat.{job}") == before

    until(stopped)
    before = output(cluster, f"beat.{job}")
    assert cluster.run(f"scontrol resume {job}").code == 0
    until(lambda: output(cluster, f"beat.{job}") != before)
    cluster.run(f"scancel {job}")
    cluster.ended(job)


# -- who waits for whom --------------------------------------------------------------------------------------


def test_dependencies(cluster: Cluster) -> None:
    good = cluster.submit("-H -o /dev/null --wrap=true")
    bad = cluster.submit("-H -o /dev/null --wrap='exit 3'")
    kinds = {"ok": f"afterok:{good}", "notok": f"afternotok:{bad}", "any": f"afterany:{good}:{bad}",
             "never": f"afterok:{bad}", "both": f"afterok:{good},afterany:{bad}"}  # fmt: skip
    jobs = {name: cluster.submit(f"-d {words} -o /dev/null --wrap=true") for name, words in kinds.items()}
    assert cluster.run(f"squeue -h -o %r -j {jobs['ok']}").out == "Dependency\n"
    cluster.run(f"scontrol release {good} {bad}")
    cluster.ended(good, bad, *jobs.values())
    states = {name: cluster.state(job) for name, job in jobs.items()}
    assert states == {"ok": "COMPLETED", "notok": "COMPLETED", "any": "COMPLETED", "never": "CANCELLED",
                      "both": "COMPLETED"}  # fmt: skip
    late = cluster.submit(f"-d afterok:{bad} -o /dev/null --wrap=true")
    cluster.ended(late)
    assert cluster.run(f"squeue -h -t all -o %r -j {late}").out == "DependencyNeverSatisfied\n"


def test_after_waits_for_a_start(cluster: Cluster) -> None:
    first = cluster.submit("-H -o /dev/null --wrap='sleep 300'")
    second = cluster.submit(f"-d after:{first} -o /dev/null --wrap=true")
    assert cluster.run(f"squeue -h -o '%T %r' -j {second}").out == "PENDING Dependency\n"
    cluster.run(f"scontrol release {first}")
    cluster.ended(second)
    assert cluster.state(first) == "RUNNING"
    third = cluster.submit(f"-d after:{first} -o /dev/null --wrap=true")
    cluster.ended(third)
    cluster.run(f"scancel {first}")
    cluster.ended(first)


def test_singleton_waits_for_its_namesakes(cluster: Cluster) -> None:
    first = cluster.submit("-J one -H -o /dev/null --wrap=true")
    second = cluster.submit("-J one -d singleton -o /dev/null --wrap=true")
    other = cluster.submit("-J two -d singleton -o /dev/null --wrap=true")
    cluster.ended(other)
    assert cluster.state(second) == "PENDING"
    cluster.run(f"scancel {first}")
    cluster.ended(second)


def test_an_array_and_its_limit(cluster: Cluster) -> None:
    job = cluster.submit("--array=1-6%2 -o arr.%A_%a --wrap='squeue -h -r -t R -o %i -j $SLURM_ARRAY_JOB_ID | wc -l'")
    cluster.ended(job)
    counts = [int(output(cluster, f"arr.{job}_{index}")) for index in range(1, 7)]
    assert max(counts) <= 2
    rows = cluster.run(f"sacct -X -n -P -o JobID,State -j {job}").out.split()
    assert rows == [f"{job}_{index}|COMPLETED" for index in range(1, 7)]
    raw = cluster.run(f"sacct -X -n -P -o JobIDRaw -j {job}_3").out.strip()
    assert cluster.run(f"sacct -X -n -P -o JobID -j {raw}").out.strip() == f"{job}_3"


def test_a_job_that_waits_is_changed(cluster: Cluster) -> None:
    full = cluster.submit("-N2 --exclusive -o /dev/null --wrap='sleep 300'")
    cluster.runs(full)
    job = cluster.submit("-c2 -t 5 -o /dev/null --wrap='sleep 300'")
    words = f"jobid={job} timelimit=+10 jobname=new comment=why numcpus=1 minmemorynode=200"
    assert cluster.run(f"scontrol update {words}").code == 0
    shown = cluster.run(f"squeue -h -o '%l %j %k %C %m %T' -j {job}").out
    assert shown == "15:00 new why 1 200M PENDING\n"
    refused = cluster.run(f"scontrol update jobid={job} numnodes=9")
    assert (refused.code, "can never fit" in refused.err) == (1, True)
    running = cluster.run(f"scontrol update jobid={full} timelimit=1")
    assert (running.code, "is running" in running.err) == (1, True)
    assert cluster.run(f"scontrol update jobid={job} nosuch=1").code == 1
    cluster.run(f"scancel {full}")
    cluster.runs(job)
    assert cluster.run(f"squeue -h -o '%C %m' -j {job}").out == "1 200M\n"
    cluster.run(f"scancel {job}")
    cluster.ended(full, job)


# -- the script and where it runs ----------------------------------------------------------------------------


def test_directives_and_variables(cluster: Cluster) -> None:
    text = (
        "#!/bin/bash\n#SBATCH --job-name='a name' -o names.%j.%x\n# a remark\n#SBATCH   --mem   100M  # why not\n\n"
        "echo $SLURM_JOB_NAME $SLURM_MEM_PER_NODE $1\n#SBATCH -J other\n"
    )
    job = int(cluster.run(f"sbatch --parsable {script(cluster, 'head.sh', text)} word", SBATCH_MEM_PER_CPU="").out)
    cluster.ended(job)
    assert output(cluster, f"names.{job}.a name") == "a name 100 word\n"


def test_an_output_directory_is_made(cluster: Cluster) -> None:
    job = cluster.submit("-D deep -o logs/%j.out --wrap='pwd'")
    cluster.run("mkdir -p deep")
    cluster.ended(job)
    assert (cluster.folder / "deep" / "logs").is_dir()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [("", "kept -"), ("--export=ALL,MORE=1", "kept 1"), ("--export=NONE", "- -"), ("--export=MORE=2", "- 2"),
     ("--export=KEPT", "kept -")],
)  # fmt: skip
def test_exports(cluster: Cluster, words: str, wanted: str) -> None:
    command = "echo ${KEPT:--} ${MORE:--}; scontrol show hostnames; srun true && echo found"
    done = cluster.run(f"sbatch --parsable {words} -o exports.%j --wrap='{command}'", KEPT="kept")
    job = int(done.out)
    cluster.ended(job)
    assert output(cluster, f"exports.{job}").split("\n")[0] == wanted
    assert "found" in output(cluster, f"exports.{job}")


def test_a_requeued_job_appends_where_it_is_told_to(cluster: Cluster) -> None:
    text = "#!/bin/bash\necho run ${SLURM_RESTART_COUNT:-0}\n[ $SLURM_RESTART_COUNT ] || sleep 300\n"
    job = cluster.submit(f"--open-mode=append -o again.%j {script(cluster, 'again.sh', text)}")
    until(lambda: output(cluster, f"again.{job}"))
    assert cluster.run(f"scontrol requeue {job}").code == 0
    cluster.ended(job)
    lines = output(cluster, f"again.{job}").splitlines()
    assert [line for line in lines if "CANCELLED AT" not in line] == ["run 0", "run 1"]
    assert cluster.run(f"sacct -X -n -P -o State -j {job}").out == "COMPLETED\n"


# -- steps ---------------------------------------------------------------------------------------------------


def test_steps_of_a_batch_job(cluster: Cluster) -> None:
    text = (
        "#!/bin/bash\nsrun -l bash -c 'echo $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME' | sort\n"
        "srun -n1 --output=step.%t.%s.out --error=step.err bash -c 'echo out; echo err >&2'\n"
        "srun -n2 bash -c 'exit $((SLURM_PROCID + 4))'\necho code $?\n"
    )
    job = cluster.submit(f"-N2 -n4 -o many.%j {script(cluster, 'many.sh', text)}")
    cluster.ended(job)
    lines = output(cluster, f"many.{job}").splitlines()
    assert lines[:4] == [f"{rank}: {rank} of 4 on node{1 + rank // 2}" for rank in range(4)]
    assert lines[-1] == "code 5"
    assert output(cluster, "step.0.1.out") == "out\n"
    assert output(cluster, "step.err") == "err\n"
    rows = cluster.run(f"sacct -n -P -o JobID,State,ExitCode,NTasks -j {job}").out.split()
    assert rows == [f"{job}|COMPLETED|0:0|", f"{job}.batch|COMPLETED|0:0|1", f"{job}.0|COMPLETED|0:0|4",
                    f"{job}.1|COMPLETED|0:0|1", f"{job}.2|FAILED|5:0|2"]  # fmt: skip


def test_input_goes_to_every_task(cluster: Cluster) -> None:
    assert cluster.run("srun -n2 -l cat | sort", "one\n").out == "0: one\n1: one\n"
    assert cluster.run("srun -n2 -i none -l cat", "one\n").out == ""


def test_a_bad_exit_kills_the_others(cluster: Cluster) -> None:
    done = cluster.run("srun -n2 -K bash -c 'if [ $SLURM_PROCID = 1 ]; then exit 7; fi; sleep 300'")
    assert "task 1: Exited with exit code 7" in done.err
    assert done.code >= 7


def test_programs_by_rank(cluster: Cluster) -> None:
    (cluster.folder / "multi.conf").write_text("# who does what\n0 echo first\n1 echo task %t\n")
    done = cluster.run("srun -n2 -l --multi-prog multi.conf | sort")
    assert done.out == "0: first\n1: task 1\n"


def test_srun_passes_a_signal_on(cluster: Cluster) -> None:
    command = ["srun", "bash", "-c", "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done"]
    child = subprocess.Popen(command, cwd=cluster.folder, env=cluster.env, stdout=subprocess.PIPE, text=True,
                             stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    assert child.stdout.read() == "caught\n"
    assert child.wait(30) == 3
    child.stdout.close()


def test_a_client_that_goes_takes_its_job_along(cluster: Cluster) -> None:
    null = subprocess.DEVNULL
    command = ["srun", "-J", "left", "sleep", "300"]
    child = subprocess.Popen(command, cwd=cluster.folder, env=cluster.env, stdin=null, stdout=null, stderr=null)
    until(lambda: "RUNNING" in cluster.run("squeue -h -n left -o %T").out)
    until(lambda: cluster.run("squeue -h -s -n left").out)
    child.kill()
    child.wait()
    until(lambda: not cluster.run("squeue -h -n left").out)


def test_a_terminal(cluster: Cluster) -> None:
    master, slave = pty.openpty()
    child = subprocess.Popen(["srun", "--pty", "bash", "--norc", "-i"], cwd=cluster.folder, env=cluster.env,
                             stdin=slave, stdout=slave, stderr=slave, start_new_session=True)  # fmt: skip
    os.close(slave)
    said = b""

    def shows(pattern: bytes) -> bool:
        nonlocal said
        if select.select([master], [], [], 0.1)[0]:
            with suppress(OSError):  # the other end is closed
                said += os.read(master, 4096)
        return re.search(pattern, said) is not None

    until(lambda: shows(rb"[#$] "))
    os.write(master, b"tty; echo job=$SLURM_JOB_ID=; exit 6\n")
    until(lambda: shows(rb"/dev/pts/\d+\r\n") and shows(rb"job=\d+="))
    assert child.wait(30) == 6
    os.close(master)


def test_an_allocation(cluster: Cluster) -> None:
    done = cluster.run("salloc -N2 bash -c 'echo $SLURM_JOB_NODELIST; srun -l hostname | wc -l; exit 4'")
    assert done.out == "node[1-2]\n2\n"
    assert done.code == 4
    job = re.search(r"Granted job allocation (\d+)", done.err)
    assert job is not None
    assert cluster.run(f"sacct -X -n -P -o State -j {job[1]}").out == "COMPLETED\n"


def test_a_step_outlives_the_server(cluster: Cluster) -> None:
    child = subprocess.Popen(["srun", "bash", "-c", "echo ready; read line; echo got $line"], cwd=cluster.folder,
                             env=cluster.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    cluster.server.kill()
    cluster.server.start()
    said, _ = child.communicate("it\n", 60)
    assert (said, child.returncode) == ("got it\n", 0)


# -- installing ----------------------------------------------------------------------------------------------


def test_nothing_foreign_is_overwritten(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "squeue").write_text("#!/bin/sh\necho real\n")
    (folder / "squeue").chmod(0o755)
    done = cluster.run(f"{sys.executable} -m tidegate.cli.main slurm install {folder}")
    assert done.code == 1
    assert [path.name for path in folder.iterdir()] == ["squeue"]
    checked = cluster.run(f"PATH={folder}:$PATH {sys.executable} -m tidegate.cli.main slurm install --check {tmp_path}")
    assert checked.code == 1
    assert f"{folder}/squeue" in checked.out
    assert "JOBID" in cluster.run(f"{sys.executable} -m tidegate.cli.main squeue").out


def test_a_server_that_is_not_there(tmp_path: Path, cluster: Cluster) -> None:
    done = cluster.run("squeue", TIDEGATE_HOME=str(tmp_path / "none"))
    assert done.code == 1
    assert "slurm_load_jobs error: Unable to contact slurm controller" in done.err


# -- MPI -----------------------------------------------------------------------------------------------------

RANK = r"""
import os, socket, sys
line = socket.socket(fileno=int(os.environ["PMI_FD"]))
told = line.makefile("rw")
rank, size = os.environ["PMI_RANK"], int(os.environ["PMI_SIZE"])
def ask(text):
    told.write(text + "\n")
    told.flush()
    return dict(word.partition("=")[::2] for word in told.readline().split())
assert ask("cmd=init pmi_version=1 pmi_subversion=1")["rc"] == "0"
name = ask("cmd=get_my_kvsname")["kvsname"]
ask(f"cmd=put kvsname={name} key=card-{rank} value=from-{rank}")
assert ask("cmd=barrier_in")["cmd"] == "barrier_out"
cards = [ask(f"cmd=get kvsname={name} key=card-{other}")["value"] for other in range(size)]
where = ask(f"cmd=get kvsname={name} key=PMI_process_mapping")["value"]
assert ask(f"cmd=get kvsname={name} key=none")["rc"] == "-1"
if sys.argv[1:] == ["abort"] and rank == "1":
    told.write("cmd=abort exitcode=5\n")
    told.flush()
    told.readline()
print(cards, where)
ask("cmd=finalize")
"""


def test_ranks_find_each_other(cluster: Cluster) -> None:
    (cluster.folder / "rank.py").write_text(RANK)
    done = cluster.run("srun -N2 -n4 python3 rank.py")
    line = "['from-0', 'from-1', 'from-2', 'from-3'] (vector,(0,2,2))"
    assert (done.out.splitlines(), done.code) == ([line] * 4, 0)
    assert cluster.run("srun -n2 python3 rank.py abort").code == 5


def test_mpich_where_it_is_installed(cluster: Cluster) -> None:
    if shutil.which("mpicc.mpich") is None:
        pytest.skip("real Slurm missing: mpicc.mpich")
    (cluster.folder / "sum.c").write_text(
        "#include <mpi.h>\n#include <stdio.h>\nint main(int c, char **v) { int r, s; MPI_Init(&c, &v);\n"
        "MPI_Comm_rank(MPI_COMM_WORLD, &r); MPI_Allreduce(&r, &s, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);\n"
        'printf("%d\\n", s); return MPI_Finalize(); }\n'
    )
    assert cluster.run("mpicc.mpich -o sum sum.c").code == 0
    assert cluster.run("srun -N2 -n4 ./sum").out == "6\n" * 4
