"""Whatever is done to a trace file: a workload in which every line is accounted for, or a TraceError."""

import gzip
import random
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidegate.lab.traces import read_trace
from tidegate.lab.workload import JOB_IDS, Filter, Runtimes, TraceError, TraceOptions, Workload

SWF = "; Version: 2.2\n; MaxProcs: 100\n; UnixStartTime: 843480031\n" + "".join(
    f"{job} {job * 60} 5 {job % 7 * 100} {job % 9 * 16} -1 -1 {job % 5 * 20} {job % 3 * 300} -1 {job % 6} "
    f"{job % 4} 1 -1 1 -1 -1 -1\n"
    for job in range(1, 30)
)
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n" + "".join(
    f"2017-10-{day:02d} 06:13:03,{day * 59.5},{day % 9},1.0,vc{day % 3}\n" for day in range(1, 20)
)
SIA = "name,time,application,num_replicas,batch_size\n" + "".join(
    f"cifar10-{job},{job * 10.25},{'cifar10' if job % 2 else 'bert'},{job % 17},2048\n" for job in range(20)
)
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
) + "".join(f"p{n},{n * 500},1024,{n % 2},{n * 40},T4|V100,LS,Running,{n},{n + 50},{n + 1}\n" for n in range(20))
SACCT = (
    "JobID|JobIDRaw|User|Partition|QOS|State|Submit|Start|End|ElapsedRaw|Timelimit|NNodes|AllocCPUS|ReqMem|AllocTRES\n"
    + (
        "".join(
            f"{job}|{job}|ann|debug|normal|COMPLETED|2026-11-18T10:{job:02d}:00|2026-11-18T11:00:00|Unknown|{job * 9}|"
            f"1-02:00:00|{job % 3 + 1}|{job % 8}|4Gn|cpu={job},mem=2G,gres/gpu={job % 3}\n{job}.batch|{job}.batch|"
            f"|||COMPLETED|2026-11-18T10:00:00|||{job}||1|1||\n"
            for job in range(1, 15)
        )
    )
)
TRACES = [text.encode() for text in (SWF, PHILLY, SIA, OPENB, SACCT)]

NASTY = st.sampled_from(
    [
        *(b"nan", b"-inf", b"1e400", b"1.5e3", b"1e-320", b"-1", b"-0", b"0x10", b"1_0", b"-", b".", b""),
        *(b"9" * 30, b"9" * 5000, "٣".encode(), b"|", b",", b'"', b"'", b";", b"#", b" ", b"\t", b"\0"),
        *(b"\r", b"\n", b"\r\n", b"\x0b\x0c\x1c", b"\xe2\x80\xa8", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1f\x8b"),
        *(b"0001-01-01", b"9999-12-31T23:59:59+00:01", b"1-00:00:00", b"UNLIMITED", b"PENDING", b"4Ec"),
        b"gres/gpu=99999999999",
    ]
)
OPTIONS = [
    TraceOptions(),
    TraceOptions(filter=Filter.SC15, capacity=64, runtimes=Runtimes.EXACT),
    TraceOptions(capacity=1, run_s=5, gpus_per_node=3, shown_max=0),
    TraceOptions(date_from="2017-10-05", date_to="2017-10-12"),
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid file after some cuts, splices, swaps and replaced fields."""
    data = draw(st.sampled_from(TRACES))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        to = min(len(data), at + draw(st.integers(0, 40)))
        match draw(st.sampled_from(["splice", "drop", "double", "field", "lines"])):
            case "splice":
                data = data[:at] + draw(NASTY | st.binary(max_size=12)) + data[at:]
            case "drop":
                data = data[:at] + data[to:]
            case "double":
                data = data[:to] + data[at:]
            case "field":
                mark = draw(st.sampled_from([b" ", b",", b"|", b"\n"]))
                fields = data.split(mark)
                fields[draw(st.integers(0, len(fields) - 1))] = draw(NASTY)
                data = mark.join(fields)
            case _:
                lines = data.splitlines(keepends=True)
                random.Random(at).shuffle(lines)
                data = b"".join(lines)
    return data


def read(data: bytes, options: TraceOptions) -> Workload | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(data)
        try:
            return read_trace(path, options=options)
        except TraceError:
            return None


def check(workload: Workload) -> None:
    problems = workload.problems
    counted = len(workload) + problems.errors.total() + problems.left_out.total() + problems.comments
    assert counted == problems.lines, "every line is accounted for"
    assert len(problems.shown) <= problems.shown_max
    problems.report()
    jobs = list(workload)
    assert [a.at_ms for a in jobs] == sorted(a.at_ms for a in jobs)
    assert len({a.submit.job for a in jobs}) == len(jobs)
    for at_ms, submit, run_ms, _ in jobs:
        spec = submit.spec
        assert 0 < submit.job < JOB_IDS
        assert at_ms >= 0 <= run_ms
        assert spec.limit_ms >= 1000
        assert spec.user
        assert spec.shape.count >= 1
        assert spec.shape.chunk
        assert all(amount > 0 for _, amount in spec.shape.chunk)


@settings(max_examples=400)
@given(mutated(), st.sampled_from(OPTIONS))
@example(SWF.encode(), OPTIONS[0])
@example(PHILLY.encode(), OPTIONS[3])
@example(SACCT.encode(), OPTIONS[0])
def test_a_mutated_trace_loses_no_line(data: bytes, options: TraceOptions) -> None:
    workload = read(data, options)
    if workload is not None:
        plain = data.removeprefix(b"\xef\xbb\xbf")
        if not data.startswith(b"\x1f\x8b"):
            assert workload.problems.lines == len(plain.splitlines())
        check(workload)


@settings(max_examples=150)
@given(st.sampled_from(TRACES), st.data())
def test_a_damaged_gzip_loses_no_line(trace: bytes, data: st.DataObject) -> None:
    packed = bytearray(gzip.compress(trace))
    if data.draw(st.booleans()):
        packed[data.draw(st.integers(2, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    workload = read(bytes(packed[: data.draw(st.integers(0, len(packed)))]), TraceOptions())
    if workload is not None:
        check(workload)


@settings(max_examples=150)
@given(st.binary(max_size=400))
def test_garbage_is_refused_or_read(data: bytes) -> None:
    workload = read(data, TraceOptions())
    if workload is not None:
        check(workload)
