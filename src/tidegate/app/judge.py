"""The judge: a process that reads a policy, checks it, and tries it on a state of its own, folded from the journal.

A policy file of the largest size takes the reader of YAML a while, and a cycle over a long queue takes longer: neither
is to hold up the server, and a thread would, for compiled code is not interrupted.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from tidegate.api.policies import Question, Verdict
from tidegate.model.policy import PolicySpec
from tidegate.ports import JournalError
from tidegate.wire import api
from tidegate.wire.policy_diff import changes
from tidegate.wire.policy_file import PolicyError, inspect_policy, load_builtin

CHECK_S = 10.0
LOOK_S = 18.0
"""A client waits half a minute for an answer; then it would see none at all."""

_decode_question = msgspec.msgpack.Decoder(Question).decode
_decode_verdict = msgspec.msgpack.Decoder(Verdict).decode
_encode = msgspec.msgpack.Encoder().encode


class TooLongError(Exception):
    """It was not done in time."""


class Judge:
    """For the server, from its threads: a process a question."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self.processes: list[subprocess.Popen[bytes]] = []
        self.closed = False

    def __call__(self, question: Question) -> Verdict:
        if question.look:
            try:
                return self._ask(question, LOOK_S)
            except TooLongError:
                question.look = False
                verdict = self._ask(question, CHECK_S)
                if verdict.diff is not None:
                    verdict.diff.trouble = f"it took longer than {LOOK_S:.0f} s"
                return verdict
        return self._ask(question, CHECK_S)

    def _ask(self, question: Question, patience_s: float) -> Verdict:
        command = [sys.executable, "-P", "-m", "tidegate.app.judge", str(self.journal)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            self.processes.append(process)
            if self.closed:
                process.kill()
            try:
                said, _ = process.communicate(_encode(question), patience_s)
            except subprocess.TimeoutExpired:
                raise TooLongError(f"it took longer than {patience_s:.0f} s") from None
            finally:
                process.kill()
                self.processes.remove(process)
        if process.returncode:
            raise RuntimeError(f"the judge ended with exit code {process.returncode}")
        return _decode_verdict(said)

    def close(self) -> None:
        self.closed = True
        for process in tuple(self.processes):
            process.kill()


# -- in the process ------------------------------------------------------------------------------------------


def judged(question: Question, journal: Path) -> Verdict:
    choice = question.choice
    try:
        spec, warnings = (question.spec, []) if question.spec is not None else _read(choice)
    except PolicyError as error:
        return Verdict(str(error).split("\n"))
    old = question.in_force
    found = [api.ChangeRow(*change) for change in changes(old, spec)]
    diff = api.PolicyDiffBody(question.version, old.name, spec.name, found, warnings, None)
    if question.look and found:
        try:
            diff.effect = _look(question, spec, journal)
        except JournalError as error:
            diff.trouble = str(error)
    return Verdict([], spec, diff)


def _read(choice: api.PolicyChoice) -> tuple[PolicySpec, list[str]]:
    if choice.name:
        return load_builtin(choice.name), []
    found = inspect_policy(choice.text)
    if found.spec is None:
        raise PolicyError(choice.source, found.errors)
    return found.spec, [f"{choice.source}:{warning}" for warning in found.warnings]


def _look(question: Question, spec: PolicySpec, journal: Path) -> api.EffectBody:
    from tidegate.journals.sqlite import SqliteJournal
    from tidegate.lab.effect import effect
    from tidegate.loop.recovery import recover

    with suppress(OSError):
        os.nice(10)
    reader = SqliteJournal(journal, readonly=True)
    try:
        world = recover(reader)
    finally:
        reader.close()
    return effect(world, question.in_force, spec, question.now)


def main() -> int:
    """`python -m tidegate.app.judge JOURNAL`, the question on standard input, the verdict on standard output."""
    question = _decode_question(sys.stdin.buffer.read())
    sys.stdout.buffer.write(_encode(judged(question, Path(sys.argv[1]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
