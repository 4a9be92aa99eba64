"""Traces: what each format's lines become, and that no bad file gives a traceback or loses a line."""

import csv
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.lab.traces import read_trace, text
from tidegate.lab.traces.sacct import duration, memory_mib
from tidegate.lab.workload import (
    JOB_IDS,
    UNLIMITED_MS,
    Arrival,
    Filter,
    Problems,
    QueueFrom,
    Runtimes,
    TraceError,
    TraceOptions,
    Workload,
)
from tidegate.model.jobs import Shape
from tidegate.model.nodes import Node

RealTrace = Callable[[str], Path]
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes, name: str = "trace") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def swf(job: int = 1, submit: int = 0, run: int = 60, procs: int = 4, **other: int) -> str:
    """One line of SWF; other columns by name, unknown unless given."""
    columns = {"asked": -1, "requested_s": 100, "status": 1, "user": 7, "group": 3, "queue": 2, "partition": 5}
    c = columns | other
    fields = (
        job, submit, -1, run, procs, -1, -1, c["asked"], c["requested_s"], -1,
        c["status"], c["user"], c["group"], -1, c["queue"], c["partition"], -1, -1,
    )  # fmt: skip
    return " ".join(map(str, fields)) + "\n"


def accounted(workload: Workload) -> bool:
    p = workload.problems
    return len(workload) + p.errors.total() + p.left_out.total() + p.comments == p.lines


def only(workload: Workload) -> Arrival:
    (arrival,) = workload
    return arrival


# -- SWF ---------------------------------------------------------------------------------------------------


def test_an_swf_line_becomes_an_arrival(write: Write) -> None:
    workload = read_trace(write("; MaxProcs: 100\n; UnixStartTime: 86400\n" + swf(job=12, submit=5)))
    arrival = only(workload)
    spec = arrival.submit.spec
    assert (arrival.at_ms, arrival.run_ms, arrival.label, arrival.submit.job) == (5000, 60_000, 12, 12)
    assert spec.shape == Shape(chunk=(("cpus", 1000),), count=4, stack=True)
    assert (spec.limit_ms, spec.user, spec.queue, spec.pool, spec.name) == (100_000, "u7", "default", "", "")
    assert (spec.expected_ms, workload.max_procs, workload.origin) == (0, 100, "1970-01-02 00:00:00")
    assert not workload.problems
    assert workload.problems.comments == 2


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (swf(run=-1), "no_run_time"),
        (swf(run=-1, status=5), "cancelled_before_start"),
        (swf(run=0, status=5), "cancelled_before_start"),
        (swf(procs=-1), "no_processors"),
        (swf(procs=0, asked=0), "no_processors"),
    ],
)
def test_what_swf_leaves_out(write: Write, line: str, kind: str) -> None:
    workload = read_trace(write(line))
    assert (len(workload), dict(workload.problems.left_out)) == (0, {kind: 1})
    assert not workload.problems, "what a rule leaves out is no error"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (swf(submit=-1), "negative_time"),
        (swf(run=-5), "negative_time"),
        (swf(procs=101), "too_large"),
        (swf(run=10**12), "out_of_range"),
        (swf(submit=10**30), "out_of_range"),
        ("1 2 3 4\n", "missing_column"),
        (swf().replace("60", "nan"), "unreadable"),
        (swf().replace("60", "inf"), "unreadable"),
        (swf().replace("60", "6_0"), "unreadable"),
        (swf().replace("60", "9" * 5000), "unreadable"),
        (swf().replace("60", "sixty"), "unreadable"),
    ],
)
def test_a_wrong_swf_line_is_reported_by_line(write: Write, line: str, kind: str) -> None:
    workload = read_trace(write("; MaxProcs: 100\n" + swf() + line + swf(job=2)))
    problems = workload.problems
    assert (len(workload), dict(problems.errors)) == (2, {kind: 1})
    assert [number for number, _ in problems.shown] == [3]
    assert problems.shown[0][1].startswith(kind)
    assert accounted(workload)


def test_a_job_that_ran_no_time_is_real(write: Write) -> None:
    arrival = only(read_trace(write(swf(run=0)), options=TraceOptions(runtimes=Runtimes.EXACT)))
    assert (arrival.run_ms, arrival.submit.spec.expected_ms) == (0, 1)


def test_the_limit_is_the_requested_time_else_the_run_time(write: Write) -> None:
    lines = swf(requested_s=30) + swf(2, requested_s=-1) + swf(3, run=0, requested_s=0)
    limits = [arrival.submit.spec.limit_ms for arrival in read_trace(write(lines))]
    assert limits == [30_000, 60_000, 1000]


def test_fractions_short_and_long_lines_are_read(write: Write) -> None:
    workload = read_trace(write("1 0.5 -1 1.5e1 2\n" + "2 1 -1 10 2 -1 -1 2 60 -1 1\n" + swf(3, 2)[:-1] + " 9 9\n"))
    assert [(a.at_ms, a.run_ms) for a in workload] == [(500, 15_000), (1000, 10_000), (2000, 60_000)]
    assert workload.problems.notes == {"short_line": 1, "extra_columns": 1}


def test_sc15_is_the_published_filter(write: Write) -> None:
    lines = [
        swf(1, run=200, asked=8),  # run cut at the requested time, processors as requested
        swf(2, procs=-1, asked=3),
        swf(3, procs=3, asked=-1),
        swf(4, procs=-1),
        swf(5, procs=101, asked=8),
        swf(6, procs=8, asked=101),
        swf(7, run=0),
        swf(8, requested_s=-1),
        swf(9, run=5, status=5),  # cancelled while it ran: counts
    ]
    options = TraceOptions(filter=Filter.SC15, capacity=100, runtimes=Runtimes.EXACT)
    workload = read_trace(write("".join(lines)), options=options)
    jobs = [(a.label, a.run_ms, a.submit.spec.shape.count, a.submit.spec.expected_ms) for a in workload]
    assert jobs == [(1, 100_000, 8, 100_000), (2, 60_000, 3, 60_000), (3, 60_000, 3, 60_000), (9, 5000, 4, 5000)]
    assert workload.problems.left_out == {
        "filtered_no_processors": 1,
        "filtered_too_large": 2,
        "filtered_no_run_time": 1,
        "filtered_no_requested_time": 1,
    }


def test_sc15_needs_the_size_of_the_machine(write: Write) -> None:
    with pytest.raises(TraceError, match="give the capacity"):
        read_trace(write(swf()), options=TraceOptions(filter=Filter.SC15))


@pytest.mark.parametrize(
    ("source", "queue"), [("group", "g3"), ("queue", "q2"), ("partition", "p5"), ("default", "default")]
)
def test_the_queue_is_a_column_on_request(write: Write, source: str, queue: str) -> None:
    workload = read_trace(write(swf()), options=TraceOptions(queue_from=QueueFrom(source)))
    assert only(workload).submit.spec.queue == queue


def test_arrivals_are_sorted_and_ties_keep_the_order_of_the_trace(write: Write) -> None:
    workload = read_trace(write(swf(1, 50) + swf(9, 10) + swf(3, 10) + swf(4, 60)))
    assert [a.label for a in workload] == [9, 3, 1, 4]
    assert workload.problems.notes == {"unsorted": 2}
    assert workload.problems.shown[0][0] == 2
    many = read_trace(write("".join(swf(job, job % 2) for job in range(1, 1000))))
    assert [a.label for a in many] == [*range(2, 1000, 2), *range(1, 1000, 2)]


def test_every_job_gets_a_number_of_its_own(write: Write) -> None:
    workload = read_trace(write(swf(5) + swf(5, 1) + swf(-1, 2) + swf(JOB_IDS, 3) + swf(7, 4)))
    assert [a.submit.job for a in workload] == [5, 8, 9, 10, 7]
    assert [a.label for a in workload] == [5, 5, -1, JOB_IDS, 7]
    assert workload.problems.notes == {"duplicate_id": 1}
    top = read_trace(write(swf(JOB_IDS - 1) + swf(1, 1) + swf(1, 2) + swf(1, 3)))
    assert [a.submit.job for a in top] == [JOB_IDS - 1, 1, 2, 3]


def test_arrivals_are_a_sequence(write: Write) -> None:
    workload = read_trace(write("".join(swf(5, second) for second in range(10))))
    jobs = list(workload)
    assert [workload.arrivals[row] for row in range(-10, 10)] == jobs + jobs
    assert list(workload.arrivals[2:9:3]) == jobs[2:9:3]
    with pytest.raises(IndexError):
        workload.arrivals[10]


def test_only_the_first_errors_are_kept(write: Write) -> None:
    workload = read_trace(write(swf() + "1 2 3\n" * 50), options=TraceOptions(shown_max=3))
    assert [line for line, _ in workload.problems.shown] == [2, 3, 4]
    assert workload.problems.errors.total() == 50
    assert "missing_column 50" in workload.problems.report()[0]


# -- files -------------------------------------------------------------------------------------------------


def test_line_ends_bom_and_foreign_bytes_do_not_matter(write: Write) -> None:
    lines = "\ufeff; caf\udce9\r\n" + swf(1)[:-1] + "\r" + swf(2)[:-1] + "\r\n\r\n" + swf(3)[:-1]
    workload = read_trace(write(lines.encode("utf-8", "surrogateescape")))
    assert [a.label for a in workload] == [1, 2, 3]
    assert workload.problems.lines == 5


@pytest.mark.parametrize("size", range(1, 12))
def test_lines_do_not_depend_on_the_size_of_blocks(write: Write, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for name in ("BLOCK_BYTES", "SAMPLE_BYTES", "INFLATED_BYTES"):
        monkeypatch.setattr(text, name, size)
    content = b"a\r\nb\rc\n\r\n\n\rlong line here\r\n\xc3\xa9\r"
    for data in (content, gzip.compress(content), content[:-1]):
        with text.Text(write(data), Problems()) as opened:
            assert [line for _, line in opened.lines()] == ["a", "b", "c", "", "", "", "long line here", "é"]


def test_a_line_without_an_end_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LINE_BYTES_MAX", 1000)
    with pytest.raises(TraceError, match="has no end"):
        read_trace(write(swf() + "1 " * 1000))


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9, 0.99])
def test_a_cut_gzip_gives_what_is_before_the_cut(write: Write, keep: float) -> None:
    packed = gzip.compress("".join(swf(job, job * 7919 % 10007) for job in range(1, 3000)).encode())
    workload = read_trace(write(packed[: int(len(packed) * keep)]))
    assert 0 < len(workload) < 2999
    problems = workload.problems
    assert problems.errors.total() + problems.notes["truncated_gzip"] == 1  # type: ignore[index]
    assert accounted(workload)


def test_a_gzip_in_several_parts_is_one_trace(write: Write) -> None:
    packed = gzip.compress(swf(1).encode()) + gzip.compress(swf(2).encode()) + b"\0" * 100
    workload = read_trace(write(packed))
    assert (len(workload), bool(workload.problems)) == (2, False)


def test_damaged_gzip_is_said(write: Write) -> None:
    packed = bytearray(gzip.compress("".join(swf(job, job * 7919 % 10007) for job in range(3000)).encode()))
    packed[len(packed) // 2] ^= 0xFF
    problems = read_trace(write(bytes(packed))).problems
    assert (problems.errors + problems.notes)["corrupt_gzip"] == 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n\r\n\t", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"\x1f\x8b", "copy it again"),
        (bytes(range(256)) * 50, "binary"),
        (b"PK\x03\x04....", "zip archive"),
        (b"SQLite format 3\0....", "journal"),
        ("x".encode("utf-16"), "UTF-16"),
        (b"hello\nworld\n", "readable are"),
        (b'{"jobs": []}', "readable are"),
        (b"sn,cpu_milli,memory_mib,gpu,model\n", "nodes file"),
        (b"pool,nodes,gpus_per_node\n", "pools file"),
        (b"JobID           JobName  Partition\n", "export with: sacct"),
        (b"timestamp,num_gpus,cluster\n", "lacks duration"),
    ],
)
def test_what_is_no_trace_is_refused_with_what_to_do(write: Write, content: bytes, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        read_trace(write(content))


def test_missing_files_and_directories_are_refused(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "is a directory"), (tmp_path / "no", "does not exist"), (Path("\0"), "cannot")):
        with pytest.raises(TraceError, match=said):
            read_trace(path)


def test_dates_need_a_calendar(write: Write) -> None:
    with pytest.raises(TraceError, match="no calendar"):
        read_trace(write(swf()), options=TraceOptions(date_from="2017-10-01"))


# -- GPUs --------------------------------------------------------------------------------------------------

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def test_philly(write: Write) -> None:
    rows = (
        "2017-10-02 00:00:01,10.5,1,0,a",
        "2017-10-01 06:00:00,60,8,0,a",
        "2017-10-01 07:00:00,60,12,0,a",
        "2017-10-01 07:00:00,60,100,0,a",
        "2017-10-01 07:00:00,60,1,0,b",
        "2017-09-30 23:59:59,60,1,0,a",
        "2017-10-03 00:00:00,60,1,0,a",
        "2017-10-01 07:00:00,60,0,0,a",
        "2017-10-01 07:00:00,-60,1,0,a",
        "yesterday,60,1,0,a",
    )
    pools = write("pool,nodes,gpus_per_node\na,3,8\n", "pools")
    options = TraceOptions(pools_file=pools, date_from="2017-10-01", date_to="2017-10-03")
    workload = read_trace(write(PHILLY + "\n".join(rows)), options=options)
    assert [(a.at_ms, a.run_ms, a.submit.spec.shape, a.label) for a in workload] == [
        (6 * 3_600_000, 60_000, Shape((("gpus", 8000),)), 1),
        (7 * 3_600_000, 60_000, Shape((("gpus", 6000),), count=2), 2),
        (86_401_000, 10_500, Shape((("gpus", 1000),)), 3),
    ]
    spec = workload.arrivals[0].submit.spec
    assert (spec.user, spec.queue, spec.pool, spec.limit_ms) == ("a", "a", "a", UNLIMITED_MS)
    assert workload.nodes == tuple(Node(f"a-{n}", "a", (("gpus", 8000),)) for n in range(3))
    assert workload.origin == "2017-10-01 00:00:00"
    assert {arrival.submit.spec.pool for arrival in workload} == {"a"}
    assert workload.problems.left_out == {"unknown_pool": 1, "outside_dates": 2, "no_processors": 1}
    assert workload.problems.errors == {"too_large": 1, "negative_time": 1, "unreadable": 1}
    assert accounted(workload)


def test_a_bad_pools_file_is_refused(write: Write) -> None:
    trace = write(PHILLY)
    for content in ("a,b\n", "pool,nodes\na,many\n", "pool,nodes\na,-1\n", "pool,nodes\na,9999999\n"):
        with pytest.raises(TraceError, match="pools"):
            read_trace(trace, options=TraceOptions(pools_file=write(content, "pools")))


def test_sia_has_nominal_run_times(write: Write) -> None:
    rows = "name,time,application,num_replicas,batch_size\ncifar10-0,107.5,cifar10,6,2048\nx-1,108,x,4,1\n"
    workload = read_trace(write(rows))
    arrival = only(workload)
    assert (arrival.at_ms, arrival.run_ms, arrival.label) == (107_500, 300_000, "cifar10-0")
    assert "give run_s" in workload.problems.shown[0][1]
    told = read_trace(write(rows), options=TraceOptions(run_s=9))
    assert [a.run_ms for a in told] == [9000, 9000]


def test_training_jobs(write: Write) -> None:
    rows = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,16,30,606,vgg19,164,30\n"
    arrival = only(read_trace(write(rows)))
    assert (arrival.at_ms, arrival.run_ms, arrival.submit.spec.user) == (30_000, 164_000, "vgg19")
    assert arrival.submit.spec.shape == Shape((("gpus", 8000),), count=2)


OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)


def test_openb(write: Write) -> None:
    rows = (
        "p0,6000,12288,1,460,V100M32|T4,LS,Running,100,160,110",
        "p1,1000,1024,0,0,,Burstable,Pending,100,160,",
        "p2,1000,1024,2,1000,P100,BE,Running,100,160,100",
        "p3,1000,1024,1,1000,,BE,Running,100,,100",
        "p4,1000,1024,1,1000,,BE,Running,100,50,60",
    )
    nodes = write("sn,cpu_milli,memory_mib,gpu,model\nn0,8000,16384,1,T4\nn1,8000,16384,8,V100M32\n", "nodes")
    workload = read_trace(write(OPENB + "\n".join(rows)), options=TraceOptions(nodes_file=nodes))
    first, second = workload
    chunk = (("cpus", 6000), ("gpus", 460), ("memory", 12288))
    assert first.submit.spec.shape == Shape(chunk, where=(("gpu", ("T4", "V100M32")),))
    assert (first.label, first.at_ms, first.run_ms, first.submit.spec.klass) == ("p0", 100_000, 50_000, "ls")
    assert (second.run_ms, second.submit.spec.shape.chunk) == (60_000, (("cpus", 1000), ("memory", 1024)))
    assert workload.nodes[0] == Node(
        "n0", "default", (("cpus", 8000), ("gpus", 1000), ("memory", 16384)), (("gpu", "T4"),)
    )
    assert workload.problems.errors == {"too_large": 1, "negative_time": 1}
    assert (workload.problems.left_out, workload.problems.notes) == ({"not_ended": 1}, {"run_from_creation": 1})


def test_openb_requests_alone_need_a_run_time(write: Write) -> None:
    path = write("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,1,0,0\n")
    with pytest.raises(TraceError, match="give run_s"):
        read_trace(path)
    assert only(read_trace(path, options=TraceOptions(run_s=60))).run_ms == 60_000


# -- sacct -------------------------------------------------------------------------------------------------

SACCT = (
    "State|JobID|JobIDRaw|User|Account|QOS|Partition|Submit|Start|End|Elapsed|Timelimit|NNodes|NCPUS|ReqMem|AllocTRES"
)
T0, T1 = "2026-11-18T10:00:00", "2026-11-18T10:30:00"


def sacct_row(**given: str) -> str:
    usual = {
        "State": "COMPLETED", "JobID": "7", "JobIDRaw": "7", "User": "ann", "Account": "physics", "QOS": "High",
        "Partition": "debug", "Submit": T0, "Start": T0, "End": T1, "Elapsed": "00:30:00",
        "Timelimit": "1-00:00:00", "NNodes": "1", "NCPUS": "4", "ReqMem": "", "AllocTRES": "billing=4,cpu=4,node=1",
    }  # fmt: skip
    return "|".join((usual | given)[name] for name in SACCT.split("|")) + "\n"


def test_sacct(write: Write) -> None:
    rows = sacct_row() + sacct_row(JobID="12_3", JobIDRaw="15", Submit=T1)
    workload = read_trace(write(SACCT + "\n" + rows), options=TraceOptions(queue_from=QueueFrom.GROUP))
    first, second = workload
    spec = first.submit.spec
    assert spec.shape == Shape((("cpus", 1000),), count=4, stack=True)
    assert (spec.user, spec.queue, spec.klass, spec.pool, spec.limit_ms) == ("ann", "physics", "high", "", 86_400_000)
    assert (first.at_ms, first.run_ms, first.label) == (36_000_000, 1_800_000, 7)
    assert (second.submit.job, second.label, workload.origin) == (15, "12_3", "2026-11-18 00:00:00")


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ({"NNodes": "2"}, Shape((("cpus", 2000),), count=2)),
        ({"ReqMem": "4G"}, Shape((("cpus", 4000), ("memory", 4096)))),
        ({"ReqMem": "2000Mc"}, Shape((("cpus", 4000), ("memory", 8000)))),
        ({"ReqMem": "4Gn", "NNodes": "2"}, Shape((("cpus", 2000), ("memory", 4096)), count=2)),
        (
            {"AllocTRES": "cpu=4,gres/gpu=4,gres/gpu:a100=4,mem=3000M,node=2", "NNodes": "2", "ReqMem": "9G"},
            Shape((("cpus", 2000), ("gpus", 2000), ("memory", 1500)), count=2),
        ),
        ({"AllocTRES": "gres/gpu:a100=1,gres/gpu:v100=1"}, Shape((("cpus", 4000), ("gpus", 2000)))),
    ],
)
def test_sacct_shapes(write: Write, given: dict[str, str], shape: Shape) -> None:
    assert only(read_trace(write(SACCT + "\n" + sacct_row(**given)))).submit.spec.shape == shape


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"JobID": "7.batch"}, "step"),
        ({"State": "RUNNING", "End": "Unknown"}, "not_ended"),
        ({"State": "REQUEUED"}, "requeued"),
        ({"State": "CANCELLED by 0", "Elapsed": "00:00:00", "AllocTRES": ""}, "cancelled_before_start"),
        ({"State": "FAILED", "Elapsed": "00:00:00", "AllocTRES": ""}, "never_started"),
        ({"Submit": "Unknown"}, "missing_column"),
        ({"Elapsed": "soon"}, "unreadable"),
        ({"ReqMem": "lots"}, "unreadable"),
        ({"NCPUS": "9", "AllocTRES": "cpu=9"}, "too_large"),
        ({"JobID": "7|8"}, "unreadable"),
    ],
)
def test_sacct_rows_that_are_no_jobs(write: Write, given: dict[str, str], kind: str) -> None:
    workload = read_trace(write(SACCT + "\n" + sacct_row(**given)), options=TraceOptions(capacity=8))
    assert workload.problems.errors + workload.problems.left_out == {kind: 1}
    assert accounted(workload)


def test_sacct_names_the_missing_columns_and_the_export(write: Write) -> None:
    header = "$ sacct -P\nJobID|State|Elapsed|Timelimit\n"
    with pytest.raises(TraceError, match=r"lacks the columns User, Submit, NNodes, AllocCPUS or.*sacct -a -X -P"):
        read_trace(write(header))


@pytest.mark.parametrize(
    ("written", "ms"),
    [("1-02:03:04", 93_784_000), ("02:03:04", 7_384_000), ("03:04", 184_000), ("5", 300_000), ("2-12", 216_000_000)],
)
def test_slurm_durations(written: str, ms: int) -> None:
    assert duration(written, in_minutes=False) == ms
    assert duration("UNLIMITED", in_minutes=True) is duration("Partition_Limit", in_minutes=False) is None


def test_slurm_memory_is_rounded_up() -> None:
    assert [memory_mib(asked, 1, 1) for asked in ("1K", "1.5G", "0n", "", "2T", "100")] == [1, 1536, 0, 0, 2 << 20, 100]


# -- real traces -------------------------------------------------------------------------------------------


def test_the_filter_keeps_exactly_the_published_jobs(real_trace: RealTrace) -> None:
    log, published = real_trace("swf/KTH-SP2-1996-2.swf.gz"), real_trace("reference_schedules/KTH-SP2.sc15.csv.gz")
    workload = read_trace(log, options=TraceOptions(filter=Filter.SC15, capacity=100))
    with gzip.open(published, "rt") as stream:
        rows = {tuple(map(int, row[:5])) for row in list(csv.reader(stream))[1:]}
    ours = {
        (a.submit.job, a.at_ms // 1000, a.run_ms // 1000, a.submit.spec.shape.count, a.submit.spec.limit_ms // 1000)
        for a in workload
    }
    assert len(ours) == len(workload) == 28_481
    assert ours == rows


@pytest.mark.parametrize(
    ("name", "jobs"),
    [
        ("swf/lublin_256.swf.gz", 10_000),
        ("swf/LLNL-Atlas-2006-2.1-cln.swf.gz", 39_139),
        ("gpu/philly/philly_vcs_dev.csv.gz", 63_925),
        ("gpu/sia_workloads/newtrace/workload-1.csv", 960),
        ("gpu/alibaba_openb_v2023/openb_pod_list_default.csv.gz", 8152),
        ("gpu/tiresias_60_job.csv", 60),
    ],
)
def test_real_traces_have_no_errors(real_trace: RealTrace, name: str, jobs: int) -> None:
    workload = read_trace(real_trace(name))
    assert (len(workload), workload.problems.errors.total()) == (jobs, 0)
    assert accounted(workload)
