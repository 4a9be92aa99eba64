"""Slurm's commands answer as the real ones did. Each file of `../shared/slurm/golden` is compared, or is named in
NOT_COVERED with the reason; the deliberate differences are those of docs/slurm.md.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.live import LiveServer
from tests.slurm.cluster import OPTIONS, Cluster, the_queue
from tests.slurm.golden import GOLDEN, Said, differences, plain, read, variables, without

NOT_COVERED = {
    "rest_diag": "there is no slurmrestd; Tidegate's own HTTP API takes its place",
    "rest_jobs": "as rest_diag",
    "rest_nodes": "as rest_diag",
    "rest_partitions": "as rest_diag",
    "sdiag": "most of it is about parts of slurmctld; the head of ours is compared in test_the_head_of_sdiag",
    "err_array_big": "that cluster had a low MaxArraySize; here an array may have a million tasks",
    "err_time_limit": "no second partition with a limit of its own on declared nodes",
    "srun_multi": "four tasks on two nodes are two and two here, not three and one",
}
HOME = f"{os.sep}home{os.sep}user"
"""What is written there for the folder of the jobs."""
SHORT = r"\bshort\b"
"""The second partition of that cluster: here one pool holds the nodes that are declared."""
NEVER = r"depnever|^17 "
"""What waits for what cannot come is ended here, and waits for ever there."""
ALONE = (
    "err_array", "err_bad_option", "err_begin", "err_binary", "err_constraint", "err_dep", "err_dep_bad",
    "err_directive", "err_dos", "err_empty", "err_gres", "err_gres_name", "err_mem", "err_mem_bad",
    "err_missing_script", "err_no_shebang", "err_nodelist", "err_partition", "err_signal", "err_time", "err_account",
    "err_qos", "scontrol_show_job_bad", "scontrol_update_bad", "scancel_badid", "scancel_none", "scancel_unknown",
    "sacct_badfield", "sacct_helpformat", "sacct_unknown", "scontrol_hostnames", "scontrol_ping", "scontrol_version",
    "scontrol_show_node_bad", "squeue_bad_id", "squeue_user_unknown", "sprio", "sinfo_R", "salloc", "sbatch",
    "sbatch_array", "sbatch_parsable", "sbatch_stdin", "sbatch_wrap", "sbatch_wait_fail", "srun", "srun_exit",
    "srun_fail", "srun_immediate", "srun_missing", "srun_sig", "sstat_bad",
)  # fmt: skip
PROMISED = {
    "squeue_start": (r"^19 .*\(Resources\)",),
    "squeue_h_o": (r"^19\|",),
    "scontrol_show_job_pending": (r"^StartTime=",),
}
"""Of the first that waits the start is known here, and shown."""
QUEUE = (
    "squeue", "squeue_long", "squeue_O", "squeue_h_o", "squeue_state", "squeue_start", "squeue_noheader_ids",
    "squeue_array_expand", "squeue_steps", "scontrol_show_job_pending", "scontrol_show_job_o",
    "scontrol_show_job_array", "sinfo", "sinfo_N", "sinfo_Nl", "sinfo_s", "sinfo_o", "scontrol_show_node",
)  # fmt: skip


def places(cluster: Cluster) -> dict[str, str]:
    return {str(cluster.folder): HOME, str(cluster.server.home): "/cluster"}


def ours_of(command: str) -> str:
    """The same command for the nodes as they are called here."""
    return re.sub(r"(?<!-)\bn(\d)\b(?!=)", r"node\1", command)


def numbered(text: str) -> str:
    """Job numbers out of the texts that hold one."""
    text = re.sub(r"((?:job|allocation|StepId=)\s?)\d+(\.\d+)?(?=\s|$)", r"\1N\2", text)
    return re.sub(r"^\d+$", "N", text)


def check(cluster: Cluster, name: str, got: Said | None = None, *, drop: tuple[str, ...] = (), unordered: bool = False,
          ) -> None:  # fmt: skip
    wanted = read(name)
    got = got or cluster.run(ours_of(wanted.command))
    for said, meant in ((got.out, wanted.out), (got.err, wanted.err)):
        ours, theirs = plain(numbered(said), places(cluster)), plain(numbered(meant))
        assert not differences(without(ours, *drop), without(theirs, *drop), unordered=unordered)
    assert got.code == wanted.code


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server without a queue."""
    yield from started(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def queued(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    for made in started(tmp_path_factory.mktemp("two")):
        the_queue(made)
        yield made


def started(folder: Path) -> Iterator[Cluster]:
    if not GOLDEN.exists():
        pytest.skip("real Slurm missing: ../shared/slurm/golden")
    with LiveServer(folder / "home", *OPTIONS) as server:
        yield Cluster(server, folder / "user")


@pytest.mark.parametrize("name", ALONE)
def test_a_command_alone(cluster: Cluster, name: str) -> None:
    check(cluster, name, unordered=name == "srun")


@pytest.mark.parametrize("name", QUEUE)
def test_the_queue(queued: Cluster, name: str) -> None:
    promised = PROMISED.get(name, ())
    again = (r"Partitions=",) if name == "scontrol_show_node" else ()  # it was in two
    is_table = name.startswith(("squeue", "sinfo"))
    check(queued, name, drop=(SHORT, NEVER, *promised, *again), unordered=is_table)


@pytest.mark.parametrize("name", ["squeue", "squeue_long", "squeue_O", "sinfo_o", "squeue_start", "squeue_steps"])
def test_headers_stand_where_they_did(queued: Cluster, name: str) -> None:
    wanted = read(name)
    got = queued.run(wanted.command)
    place = int(name == "squeue_long")
    if name != "sinfo_o":
        assert got.out.split("\n")[place] == wanted.out.split("\n")[place]


def test_partitions(queued: Cluster) -> None:
    wanted = read("scontrol_show_partition")
    got = queued.run(wanted.command)
    assert not differences(plain(got.out), plain(wanted.out.split("\n\n")[0]))


def keys(text: str) -> list[str]:
    return [line.partition("=")[0].strip() for line in text.splitlines() if "=" in line]


def test_the_configuration_has_the_same_entries(queued: Cluster) -> None:
    wanted = read("scontrol_show_config")
    assert not differences(keys(queued.run(wanted.command).out), keys(wanted.out))


def test_the_head_of_sdiag(queued: Cluster) -> None:
    def head(text: str) -> list[str]:
        return [line.partition(":")[0] for line in plain(text)][: len(plain(ours.out)) - 2]

    ours = queued.run("sdiag")
    assert not differences(head(ours.out), head(read("sdiag").out))


def test_a_format_that_is_none(queued: Cluster) -> None:
    wanted = read("squeue_bad_fmt")
    got = queued.run("squeue -o '%\u03a9'")
    assert "error: Invalid job format specification" in got.err
    assert (got.code, set(got.out.split())) == (wanted.code, {"%\u03a9"})


# -- what is changed -----------------------------------------------------------------------------------------


def test_holding_and_cancelling(cluster: Cluster) -> None:
    run = cluster.run
    job = cluster.submit("-J gpu -H --wrap=true")
    later = cluster.submit("-J later -H --wrap=true")
    array = cluster.submit("-H --array=1-20 ok.sh")
    other = cluster.submit("-H ok.sh")
    check(cluster, "scontrol_hold", run(f"scontrol hold {array}"))
    check(cluster, "scontrol_update", run(f"scontrol update jobid={array} timelimit=30"))
    assert run(f"squeue -h -o %l -j {array}").out == "30:00\n"
    check(cluster, "scancel_array_task", run(f"scancel {array}_[1-10]"))
    assert run(f"squeue -h -o %i -j {array}").out == f"{array}_[11-20]\n"
    check(cluster, "scancel_name", run("scancel -n gpu"))
    check(cluster, "scancel_state", run("scancel -t PENDING -n later"))
    assert [cluster.state(one) for one in (job, later)] == ["CANCELLED", "CANCELLED"]
    check(cluster, "scancel", run(f"scancel {other}"))
    check(cluster, "scancel_again", run(f"scancel {other}"))
    held = cluster.submit("-H ok.sh")
    check(cluster, "scontrol_release", run(f"scontrol release {held}"))
    cluster.ended(held)
    check(cluster, "scancel_v", run(f"scancel -v {array}"))


def test_draining_a_node(cluster: Cluster) -> None:
    got = cluster.run("scontrol update nodename=node4 state=drain reason=test; sinfo; sinfo -R; "
                      "scontrol update nodename=node4 state=resume")  # fmt: skip
    wanted = read("scontrol_update_node")
    rows = [line for line in plain(wanted.out) if "short" not in line and " mix " not in line and " idle " not in line]
    ours = [line for line in plain(got.out) if " idle " not in line]
    assert not differences(ours, rows)
    assert (got.err, got.code) == (wanted.err, wanted.code)


@pytest.mark.parametrize("name", ["err_cpus", "err_cpus_per_task", "err_nodes"])
def test_what_can_never_run_is_refused(cluster: Cluster, name: str) -> None:
    """There it is queued for ever; here as on a cluster that enforces its limits."""
    got = cluster.run(read(name).command)
    assert (got.out, got.code) == ("", 1)
    assert "sbatch: error: Batch job submission failed: " in got.err


def test_only_a_test(cluster: Cluster) -> None:
    wanted = read("sbatch_testonly")
    got = cluster.run(wanted.command)
    pattern = r"sbatch: Job \d+ to start at <when> using 4 processors on nodes \S+ in partition debug"
    for said in (got, wanted):
        assert re.fullmatch(pattern, "".join(plain(said.err)))
    assert (got.out, got.code) == (wanted.out, wanted.code)


# -- what has ended ------------------------------------------------------------------------------------------

ENDS = (
    ("sacct_failed", "-J fail fail.sh", 16), ("sacct_signal", "-J sig --wrap='kill -9 $$'", 13),
    ("sacct_oom", "--mem=50M -J oom --wrap='python3 -c \"x = bytearray(2 << 30); x[:] = b\\\"1\\\" * len(x)\"'", 1),
)  # fmt: skip


def account(cluster: Cluster, name: str, job: int, number: int) -> None:
    """Rows of `sacct -P` with the job's number made that of the golden file."""
    wanted = read(name)
    words = wanted.command.partition("#")[0].replace(f"-j {number} ", f"-j {job} ")
    got = cluster.run(words)
    ours = plain(re.sub(rf"^{job}\b", str(number), got.out, flags=re.MULTILINE))
    theirs = plain(wanted.out.partition("--- output file")[0])
    assert not differences(ours, theirs)
    assert (got.err, got.code) == ("", wanted.code)


@pytest.mark.parametrize(("name", "words", "number"), ENDS)
def test_how_jobs_end(cluster: Cluster, name: str, words: str, number: int) -> None:
    job = cluster.submit(f"-o /dev/null {words}")
    cluster.ended(job)
    account(cluster, name, job, number)


def test_a_cancelled_job(cluster: Cluster) -> None:
    job = cluster.submit("-J cancelme --wrap='sleep 300'")
    cluster.runs(job)
    cluster.run(f"scancel {job}")
    cluster.ended(job)
    account(cluster, "sacct_cancelled", job, 14)


def test_a_requeued_job(cluster: Cluster) -> None:
    job = cluster.submit("-J rq -o rq.out rq.sh")
    cluster.runs(job)
    assert cluster.run(f"scontrol requeue {job}").code == 0
    cluster.ended(job)
    account(cluster, "sacct_requeued", job, 51)
    account(cluster, "sacct_D_requeued", job, 51)
    check(cluster, "output_requeued")


def test_a_job_that_runs_into_its_limit(cluster: Cluster) -> None:
    job = cluster.submit("-J tmo -t 0:01 -o tmo.out --wrap='echo start; sleep 300'")
    cluster.ended(job)
    account(cluster, "sacct_timeout", job, 50)
    wanted, got = read("scontrol_show_job_timeout"), cluster.run(f"scontrol show job {job}")
    ours = plain(got.out.replace(f"JobId={job} ", "JobId=50 "), places(cluster))
    assert not differences(ours, plain(wanted.out))
    said = (cluster.folder / "tmo.out").read_text().replace(f"JOB {job} ", "JOB 50 ")
    assert not differences(plain(said), plain(read("output_timeout").out))


def test_a_running_job_with_gpus(cluster: Cluster) -> None:
    job = cluster.submit("-J gpu -c2 --mem=300M --gres=gpu:2 --wrap='sleep 300'")
    cluster.runs(job)
    run = cluster.run
    for name in ("scontrol_show_job_running", "scontrol_show_job_d", "squeue_running_gpu"):
        wanted = read(name)
        got = run(wanted.command.replace("52", str(job)))
        ours = re.sub(rf"\b{job}\b", "52", got.out)
        ignored = (r"CPU_IDs",)  # which processors is not decided here
        assert not differences(without(plain(ours, places(cluster)), *ignored), without(plain(wanted.out), *ignored))
    stats, ours = read("sstat"), run(f"sstat -j {job}.batch -P").out
    assert ours.split("\n")[0] == stats.out.split("\n")[0]
    wanted = read("sinfo_gres")
    got = run(wanted.command)
    assert got.out.split("\n")[0] == wanted.out.split("\n")[0]
    shown = {" ".join(line.split()[1:]) for line in got.out.splitlines()[1:]}
    assert shown == {" ".join(line.split()[1:]) for line in wanted.out.splitlines()[1:]}
    run(f"scancel {job}")
    cluster.ended(job)


TABLES = ("sacct", "sacct_X", "sacct_P", "sacct_P_noheader", "sacct_long")


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_what_has_ended(cluster: Cluster, name: str) -> None:
    """The same kinds of rows: header and rule as they stand, then each kind that both have, numbers aside."""
    done = cluster.submit("-J ok.sh ok.sh")
    failed = cluster.submit("fail.sh")
    array = cluster.submit("-J arr --array=0-3%2 -o a.%A_%a arr.sh")
    pending = cluster.submit("-J big -H -N4 -n4 --wrap=true")
    cluster.run(f"scancel {pending}")
    cluster.ended(done, failed, array, pending)
    wanted = read(name)
    got = cluster.run(wanted.command)
    heads = {"sacct": 2, "sacct_X": 2, "sacct_P": 1, "sacct_P_noheader": 0, "sacct_long": 2}[name]
    assert got.out.split("\n")[:heads] == wanted.out.split("\n")[:heads]
    if name == "sacct_long":
        return
    ours, theirs = kinds(got.out, heads), kinds(wanted.out, heads)
    if name == "sacct_P_noheader":
        assert {"N|COMPLETED|0:0", "N|FAILED|3:0", "N_2|FAILED|7:0"} <= ours & theirs
        return
    for kind in ("ok.sh", "fail.sh", "arr"):
        mine = {row for row in ours if kind in row and "CANCELLED" not in row}
        assert mine
        assert mine <= theirs if name != "sacct_P" else mine, differences(sorted(mine), sorted(theirs))


def kinds(text: str, heads: int) -> set[str]:
    rows = plain("\n".join(text.split("\n")[heads:]))
    return {re.sub(r"^\d+", "N", re.sub(r"\bn\d\b", "node", row)) for row in rows}


# -- variables -----------------------------------------------------------------------------------------------

VOLATILE = {
    "SLURMD_NODENAME", "SLURM_CONF", "SLURM_JOBID", "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_TASK_PID",
    "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST", "SLURM_WORKING_CLUSTER", "SLURM_CLUSTER_NAME", "SLURM_JOB_PARTITION",
    "SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_TOPOLOGY_ADDR",
    "SLURM_STEP_NODELIST",
}  # fmt: skip
EVEN = {
    "SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_GTIDS", "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0", "SLURM_LOCALID",
}  # fmt: skip
"""Four tasks on two nodes are two and two here."""
ENVIRONMENTS = (
    ("env_plain", "-J env env.sh", "out"),
    ("env_array_gpu_task5", "-J enva --array=5-6 -c2 --gres=gpu:2 --mem=200 --wrap='env > $OUT.$SLURM_ARRAY_TASK_ID'",
     "out.5"),
    ("env_export_none", "-J env.sh --export=NONE,FOO=1,OUT={out} env.sh", "out"),
    ("env_multinode_batch", "-J envm.sh -N2 -n4 --wrap='env > $OUT'", "out"),
    ("env_multinode_srun_rank0", "-J envm.sh -N2 -n4 --wrap='srun bash -c \"env > $OUT.\\$SLURM_PROCID\"'", "out.0"),
    ("env_multinode_srun_rank3", "-J envm.sh -N2 -n4 --wrap='srun bash -c \"env > $OUT.\\$SLURM_PROCID\"'", "out.3"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "words", "file"), ENVIRONMENTS)
def test_variables(cluster: Cluster, tmp_path: Path, name: str, words: str, file: str) -> None:
    out = tmp_path / "out"
    asked = words.replace("{out}", str(out))
    done = cluster.run(f"sbatch --parsable {asked}", OUT=str(out))
    assert done.code == 0, done.err
    cluster.ended(int(done.out))
    ours, theirs = variables((tmp_path / file).read_text()), variables(read(name).out)
    ours.pop("CUDA_VISIBLE_DEVICES", None)  # that cluster's devices were no real ones
    assert not differences(sorted(ours), sorted(theirs))
    skipped = VOLATILE | (EVEN if "multinode" in name else set())
    theirs["SLURM_EXPORT_ENV"] = ours.get("SLURM_EXPORT_ENV", "")
    for variable in sorted(ours.keys() - skipped):
        assert (variable, ours[variable]) == (variable, theirs[variable])


# -- JSON ----------------------------------------------------------------------------------------------------


def shape_of(value: Any) -> Any:
    """Which fields there are, and of what kind; a number may be a null."""
    if isinstance(value, dict):
        return {name: shape_of(one) for name, one in value.items()}
    if isinstance(value, list):
        return "list"
    return "text" if isinstance(value, str) else "number"


@pytest.mark.parametrize(("name", "part"), [("squeue_json", "jobs"), ("sinfo_json", "nodes")])
def test_json(queued: Cluster, name: str, part: str) -> None:
    wanted = json.loads(read(name).out)
    got = json.loads(queued.run(read(name).command).out)
    assert got["meta"] == wanted["meta"]

    def one(document: Any) -> Any:
        found = next((row for row in document[part] if row.get("name") in {"tmo", "n1", "node1"}), None)
        assert found is not None
        found.pop("job_resources", None)
        found.pop("tres_used", None)
        return {name: kind for name, kind in shape_of(found).items() if name != "hostname"}

    ours, theirs = one(got), one(wanted)
    assert sorted(ours) == sorted(theirs)
    different = {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    assert all({"text", "number"} != set(pair) or "number" in pair for pair in different.values())


def test_json_of_sacct(cluster: Cluster) -> None:
    """That file is cut after sixty lines: its fields so far are ours."""
    job = cluster.submit("-J ok.sh ok.sh")
    cluster.ended(job)
    wanted = read("sacct_json").out
    got = json.loads(cluster.run("sacct --json").out)
    fields = re.findall(r'^      "(\w+)":', wanted.partition('"jobs"')[2], re.MULTILINE)
    assert not [field for field in fields if field not in got["jobs"][0]]


def test_associations(cluster: Cluster) -> None:
    wanted = read("sacctmgr_assoc")
    got = cluster.run(wanted.command)
    assert got.out.split("\n")[:2] == wanted.out.split("\n")[:2]
    assert " root " in got.out.split("\n")[2]


# -- all of them ---------------------------------------------------------------------------------------------


def test_every_file_is_covered_or_has_a_reason() -> None:
    if not GOLDEN.exists():
        pytest.skip("real Slurm missing: ../shared/slurm/golden")
    text = Path(__file__).read_text()
    there = {file.stem for file in GOLDEN.glob("*.txt")}
    unnamed = sorted(name for name in there if f'"{name}"' not in text)
    assert not unnamed
    assert len(NOT_COVERED) <= 12
    assert NOT_COVERED.keys() <= there


def test_the_last_output_is_there_when_a_step_is_over(cluster: Cluster) -> None:
    """What a step wrote has been seen when its srun returns."""
    got = cluster.run("srun -n2 -l bash -c 'for i in $(seq 200); do echo $i; done' | wc -l")
    assert got.out.strip() == "400"
