"""The checkpoint contract with the real keeper: asked by file and signal, heard by a pipe, ended within one grace."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.engines.kit import PYTHON, Key, Local, local_engines
from tests.kit.live import until
from tidegate.model.engine import Ask, Halt, Launch, Saved
from tidegate.model.jobs import Checkpoint, Job, Outcome

KEEPER_KIB_MAX = 15 << 10
ON_ASK = 'if [ -e "$TIDE_CHECKPOINT_ASKED" ]; then cat "$TIDE_CHECKPOINT_ASKED" >>{log}; {then}; fi'


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    yield from local_engines(tmp_path / "home")


def able(job: Job, **said: object) -> Job:
    return replace(job, spec=replace(job.spec, checkpoint=Checkpoint(**said)))  # type: ignore[arg-type]


def poller(local: Local, log: Path, then: str = 'echo done >"$TIDE_CHECKPOINT_DONE"', first: str = ":") -> Job:
    """A shell that polls, and waits in between for as long as a pipe says nothing."""
    look = ON_ASK.format(log=log, then=then)
    return able(local.job("sh", "-c", f"echo up >{log}; {first}; while :; do {look}; sleep 0.02; done"))


def ask(local: Local, key: Key, number: int) -> None:
    local.engine.deliver([Ask(*key, number)], 0)


def saved(local: Local, key: Key) -> list[Saved]:
    return [report for report in local.of(Saved) if (report.task, report.attempt) == key]


def begun(local: Local, job: Job, log: Path) -> Key:
    key = local.launch(job)
    local.wait_for_text(log, "up")
    return key


def test_it_is_asked_by_a_file_and_answers_by_a_pipe(local: Local, tmp_path: Path) -> None:
    log = tmp_path / "log"
    key = begun(local, poller(local, log), log)
    ask(local, key, 1)
    local.wait_for(lambda: saved(local, key))
    ask(local, key, 1)  # the same ask again: nothing happens
    ask(local, key, 2)
    local.wait_for(lambda: len(saved(local, key)) == 2)
    assert [report.number for report in saved(local, key)] == [1, 2]
    first, second = (report.kept_ms for report in saved(local, key))
    assert 0 <= first <= second
    assert log.read_text().split("\n")[1:3] == ["1 save", "2 save"]


def test_the_job_finds_its_directory_and_what_it_left_there(local: Local, tmp_path: Path) -> None:
    job = able(local.job("sh", "-c", 'echo $TIDE_RESTART_COUNT "$TIDE_CHECKPOINT_LAST" && cd "$TIDE_CHECKPOINT_DIR" '
                         "&& mkdir -p 00000001 00000002 && touch 00000001/manifest.json"))  # fmt: skip
    assert local.end_of(local.launch(job)).outcome is Outcome.COMPLETED
    assert local.end_of(local.launch(job, attempt=2)).outcome is Outcome.COMPLETED
    place = f"{local.home}/checkpoints/{job.id // 1000}/{job.id}"
    assert local.output(job).splitlines() == ["0 ", f"1 {place}/00000001"]  # what has no manifest is not whole
    assert Path(place).stat().st_mode & 0o777 == 0o700
    assert not list((local.home / "asks").iterdir())


def test_a_task_of_an_array_and_a_place_of_ones_own(local: Local) -> None:
    job = able(local.job("sh", "-c", 'echo "$TIDE_CHECKPOINT_DIR"', array=True))
    local.end_of(local.launch(job, index=7))
    output = local.home / "output" / str(job.id // 1000) / str(job.id) / "0" / "7.out"
    assert output.read_text() == f"{local.home}/checkpoints/{job.id // 1000}/{job.id}_7\n"
    job = able(local.job("sh", "-c", 'echo "$TIDE_CHECKPOINT_DIR"', name="train"), where="s3://bucket/%x/%j-%a")
    local.end_of(local.launch(job))
    assert local.output(job) == f"s3://bucket/train/{job.id}-0\n"


def test_only_who_listens_gets_the_signal(local: Local, tmp_path: Path) -> None:
    """A shell that would end of it does not; the nearest program that catches it does, and not its workers."""
    log = tmp_path / "log"
    program = (
        "import os, signal, time\n"
        f"log = os.open({str(log)!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
        "def save(number, frame):\n"
        "    os.write(log, b'asked %d\\n' % (os.getpid() == parent))\n"
        "    open(os.environ['TIDE_CHECKPOINT_DONE'], 'w').write('done\\n')\n"
        "parent = os.getpid()\n"
        "signal.signal(signal.SIGUSR2, save)\n"
        "if os.fork(): os.write(log, b'up\\n')\n"
        "while True: signal.pause()\n"
    )
    job = able(local.job("sh", "-c", f'"{PYTHON}" -c "$0"; :', program), signal=int(signal.SIGUSR2))
    key = begun(local, job, log)
    ask(local, key, 1)
    local.wait_for(lambda: saved(local, key))
    assert log.read_text().splitlines() == ["up", "asked 1"]


def test_a_program_that_still_starts_is_not_ended_by_the_signal(local: Local, tmp_path: Path) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    os.mkfifo(go)
    trap = "trap 'echo done >\"$TIDE_CHECKPOINT_DONE\"' USR2"
    script = f"echo up >{log}; read line <{go}; {trap}; while :; do sleep 0.1; done"
    key = begun(local, able(local.job("sh", "-c", script), signal=int(signal.SIGUSR2)), log)
    ask(local, key, 1)
    assert local.look() == {key}
    go.write_text("\n")
    assert local.wait_for(lambda: saved(local, key))[0].number == 1


def test_a_halt_asks_first_and_ends_it_when_it_has_saved(local: Local, tmp_path: Path) -> None:
    log = tmp_path / "log"
    key = begun(local, poller(local, log, first=f"trap 'echo term >>{log}; exit 0' TERM"), log)
    local.engine.deliver([Halt(*key, Outcome.CANCELLED, 600_000, True)], 0)
    end = local.end_of(key)
    assert (end.outcome, end.code) == (Outcome.CANCELLED, 0)
    assert [report.number for report in saved(local, key)] == [0]
    assert log.read_text().split() == ["up", "1", "end", "term"]
    assert local.seen.index(saved(local, key)[0]) < local.seen.index(end)


def test_a_halt_that_comes_before_it_has_begun_saves_too(local: Local, tmp_path: Path) -> None:
    log = tmp_path / "log"
    job = poller(local, log)
    key = (job.id << 20, 1)
    local.engine.deliver(
        [Launch(*key, job, (("node1", 1),)), Halt(*key, Outcome.CANCELLED, 600_000, True)], 0
    )  # fmt: skip
    assert local.end_of(key).outcome is Outcome.CANCELLED
    assert [report.number for report in saved(local, key)] == [0]


def test_one_that_says_so_as_soon_as_it_runs_is_heard(local: Local) -> None:
    job = able(local.job("sh", "-c", 'echo "done 0 0 9" >"$TIDE_CHECKPOINT_DONE"'))
    key = local.launch(job)
    local.end_of(key)
    assert [(report.number, report.size_mib) for report in saved(local, key)] == [(0, 9)]


def test_one_that_does_not_answer_gets_sigterm_before_the_grace_ends(local: Local, tmp_path: Path) -> None:
    log = tmp_path / "log"
    key = begun(local, poller(local, log, then=":", first=f"trap 'echo term >>{log}; exit 3' TERM"), log)
    local.engine.deliver([Halt(*key, Outcome.CANCELLED, 600, True)], 0)
    assert local.end_of(key).code == 3
    assert not saved(local, key)


def test_a_cancel_does_not_wait_for_the_save(local: Local, tmp_path: Path) -> None:
    log = tmp_path / "log"
    key = begun(local, poller(local, log, then=":"), log)
    local.engine.deliver([Halt(*key, Outcome.CANCELLED, 600_000, True)], 0)
    local.wait_for_text(log, "end")
    local.halt(key, 600_000)
    assert local.end_of(key).signal == signal.SIGTERM


def test_it_saves_when_it_runs_into_its_limit(local: Local, tmp_path: Path) -> None:
    log = tmp_path / "log"
    job = poller(local, log)
    job = replace(job, spec=replace(job.spec, limit_ms=300))
    assert local.end_of(local.launch(job)).outcome is Outcome.TIMED_OUT
    assert [report.number for report in local.of(Saved)] == [0]


def test_what_is_said_while_no_server_is_there_is_heard_later(local: Local, tmp_path: Path) -> None:
    log = tmp_path / "log"
    say = 'echo done >"$TIDE_CHECKPOINT_DONE"'
    wait = 'while [ -e "$TIDE_CHECKPOINT_ASKED" ]; do sleep 0.02; done'
    job = poller(local, log, then=f"{say}; {wait}; echo heard >>{log}")
    key = begun(local, job, log)
    local.engine.deliver([Ask(*key, 5)], 0)
    local.engine.link._hang_up()
    local.engine.link._retry(0)
    until(lambda: "heard" in log.read_text())  # without listening to the keeper
    local.wait_for(lambda: saved(local, key))
    assert saved(local, key)[-1].number == 5
    ask(local, key, 5)  # as the next server derives it again
    assert local.look() == {key}
    assert log.read_text().count("save") == 1


@pytest.mark.parametrize(
    ("line", "number", "size"),
    [
        ("done", 3, 0),
        ("done 3", 3, 0),
        ("done 2", 2, 0),
        ("done 99 10 7", 3, 7),
        ("done 3 999999999", 3, 0),
        ("done - - 5", 3, 5),
    ],
)
def test_what_done_may_say(local: Local, tmp_path: Path, line: str, number: int, size: int) -> None:
    log = tmp_path / "log"
    say = f'printf "nonsense\\ndone x\\n{line}" >"$TIDE_CHECKPOINT_DONE"'
    key = begun(local, poller(local, log, then=f"{say}; sleep 600"), log)
    ask(local, key, 3)
    report = local.wait_for(lambda: saved(local, key))[0]
    assert (report.number, report.size_mib) == (number, size)
    assert 0 <= report.kept_ms < 60_000


def test_a_flood_of_answers_is_heard_a_few_times_a_second(local: Local, tmp_path: Path) -> None:
    log = tmp_path / "log"
    flood = "i=0; while [ $i -lt 20000 ]; do echo done >&3; i=$((i+1)); done"
    script = f'echo up >{log}; exec 3<>"$TIDE_CHECKPOINT_DONE"; {flood}; echo over >>{log}'
    key = begun(local, able(local.job("sh", "-c", script)), log)
    local.end_of(key)
    assert "over" in log.read_text()
    assert 1 <= len(saved(local, key)) < 200
    status = Path(f"/proc/{local.keeper}/status").read_text()
    assert int(status.partition("VmHWM:")[2].split()[0]) < KEEPER_KIB_MAX
