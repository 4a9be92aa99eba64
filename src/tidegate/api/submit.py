"""From the body of a submission to the command: every mistake is named by its field, with what to write instead."""

import signal
from functools import lru_cache
from hashlib import blake2b

import msgspec

from tidegate.model.base import FOREVER_MS
from tidegate.model.commands import Refused, Submit
from tidegate.model.jobs import (
    ANY_FAILURE,
    CPUS,
    GPU_LABEL,
    GPUS,
    MEMORY,
    NO_RETRY,
    After,
    AfterKind,
    Array,
    Cause,
    Checkpoint,
    JobSpec,
    Pairs,
    Retry,
    RetryRule,
    Shape,
    Work,
)
from tidegate.wire.api import CheckpointBody, RetryBody, SubmitBody
from tidegate.wire.arrays import parse_array
from tidegate.wire.outputs import OWN_FILE

DEFAULT_LIMIT_MS = 30 * 24 * 3_600_000
"""Of a job that says no limit."""
ENVIRONMENT_MAX = 1 << 20
PATH_MAX = 4096
ASK_EVERY_MS_MIN = 1000
"""Each ask and each answer is an event of the journal."""
MILLI = 1000

_CAUSES = {
    "exit": Cause.EXIT,
    "signal": Cause.SIGNAL,
    "oom": Cause.OUT_OF_MEMORY,
    "timeout": Cause.TIMED_OUT,
}
_RANGES = {Cause.EXIT: (1, 255), Cause.SIGNAL: (1, 64)}


class MistakeError(Exception):
    """Something in the body that cannot be meant."""

    def __init__(self, what: str, cure: str) -> None:
        super().__init__(what)
        self.refused = Refused(what, cure)


def command_of(body: SubmitBody, user: str) -> Submit:
    """Raises MistakeError. Whether it fits the machine is for the kernel to say."""
    if not body.script and not (body.command and body.command[0]):
        raise MistakeError("there is nothing to run", "give a command or a script")
    if "\0" in body.script or any("\0" in word for word in body.command):
        raise MistakeError("the command holds a zero octet", "leave it out")
    if "\0" in body.name + body.queue + body.notify:
        raise MistakeError("the name, the queue or the notice holds a zero octet", "leave it out")
    if body.script and not body.script.startswith("#!"):
        raise MistakeError("the script does not say what runs it", "begin it with a line such as #!/bin/sh")
    env = tuple(sorted(body.env.items()))
    spec = JobSpec(
        user=user,
        shape=_shape(
            body.cpus, body.memory_mib, body.gpus, body.gpu_model, body.nodes,
            tuple(sorted(body.resources.items())),
            tuple(sorted((label, tuple(values)) for label, values in body.where.items())),
        ),
        limit_ms=body.time_ms or DEFAULT_LIMIT_MS,
        pool=body.pool,
        queue=body.queue,
        klass=body.klass,
        name=body.name or _name_of(body),
        expected_ms=body.expected_ms,
        begin_ms=body.begin_ms,
        deadline_ms=body.deadline_ms or FOREVER_MS,
        after=_after(body),
        array=_array(body.array) if body.array else None,
        held=body.held,
        losses_max=body.losses_max,
        retry=_retry(body.retry) if body.retry is not None else NO_RETRY,
        checkpoint=_checkpoint(body.checkpoint) if body.checkpoint is not None else None,
        starts_over=body.starts_over,
        tags=tuple(sorted(body.tags.items())),
        reservation=body.reservation,
        work=_work(body, env),
    )  # fmt: skip
    return Submit(spec, 0, f"{user} {body.key}" if body.key else "", env)


def _name_of(body: SubmitBody) -> str:
    return body.command[0].rpartition("/")[2][:64] if body.command else "script"


@lru_cache(4096)
def _shape(
    cpus: float, memory_mib: int, gpus: int, gpu_model: str, nodes: int,
    resources: tuple[tuple[str, int], ...], where: tuple[tuple[str, tuple[str, ...]], ...],
) -> Shape:  # fmt: skip
    chunk = dict(resources)
    for name in (CPUS, MEMORY, GPUS):
        if name in chunk:
            raise MistakeError(f"{name} is named among the other resources", f"use the field for {name}")
    chunk |= {CPUS: round(cpus * MILLI), MEMORY: memory_mib, GPUS: gpus * MILLI}
    labels = dict(where)
    if gpu_model:
        if not gpus:
            raise MistakeError(f"GPUs of model {gpu_model!r} are wanted, but none are asked for", "ask for gpus too")
        labels[GPU_LABEL] = (gpu_model,)
    return Shape(
        chunk=tuple(sorted((name, amount) for name, amount in chunk.items() if amount)),
        count=nodes,
        stack=nodes == 1,  # the same to one chunk, and then a pool of like jobs can be counted
        where=tuple(sorted(labels.items())),
    )


def _array(text: str) -> Array:
    try:
        indices, at_once_max = parse_array(text)
    except ValueError as error:
        raise MistakeError(f"array {text[:80]!r}: {error}", "write it as 0-99, 1,3,7 or 0-999%50") from error
    return Array(indices, at_once_max)


def _after(body: SubmitBody) -> tuple[After, ...]:
    try:
        return tuple([After(after.job, AfterKind(after.kind)) for after in body.after])
    except ValueError as error:
        raise MistakeError(f"a dependency of an unknown kind ({error})", "use ok, any or fail") from error


def _retry(body: RetryBody) -> Retry:
    rules = tuple(_rule(text) for text in body.on) or ANY_FAILURE
    return Retry(body.times, rules, body.backoff_ms, max(body.backoff_max_ms, body.backoff_ms))


def _rule(text: str) -> RetryRule:
    kind, colon, codes = text.partition(":")
    cause = _CAUSES.get(kind)
    low, dash, high = codes.partition("-")
    if cause is None or (colon and cause not in _RANGES):
        raise MistakeError(f"retry on {text[:80]!r}", "use exit, exit:75, exit:100-110, signal, signal:9, oom, timeout")
    least, most = _RANGES.get(cause, (1, 255))
    if not colon:
        return RetryRule(cause, least, most)
    if not low.isdecimal() or (dash and not high.isdecimal()):
        raise MistakeError(f"retry on {text[:80]!r}: the codes are no numbers", "write exit:75 or exit:100-110")
    first, last = int(low), int(high if dash else low)
    if not least <= first <= last <= most:
        raise MistakeError(f"retry on {text[:80]!r}: codes go from {least} to {most}", "write exit:75 or exit:100-110")
    return RetryRule(cause, first, last)


def _checkpoint(body: CheckpointBody) -> Checkpoint:
    where = body.where
    if len(where) > PATH_MAX or "\0" in where or "\n" in where:
        raise MistakeError("the place for checkpoints is no path", "give a path or URL of one line")
    if where and not where.startswith("/") and "://" not in where:
        raise MistakeError(f"the place for checkpoints {where[:80]!r} is not absolute", "give the whole path, or a URL")
    if "%t" in where.replace("%%", ""):
        raise MistakeError(
            f"the place for checkpoints {where[:80]!r} is another for every attempt", "leave %t out: they all go there"
        )
    if 0 < body.every_ms < ASK_EVERY_MS_MIN:
        raise MistakeError(f"to be asked every {body.every_ms} ms is too often", f"say {ASK_EVERY_MS_MIN} ms or more")
    return Checkpoint(_signal(body.signal) if body.signal else 0, body.every_ms, body.size_mib, where)


def _signal(name: str) -> int:
    """As `kill -l` lists them, or by number. Those that nobody can catch are no question."""
    plain = name.upper().removeprefix("SIG")
    known = {one.name.removeprefix("SIG"): one.value for one in signal.Signals}
    number = int(plain) if plain.isdecimal() and plain.isascii() and len(plain) < 4 else known.get(plain, 0)
    if not 0 < number <= max(known.values()) or number in {signal.SIGKILL, signal.SIGSTOP}:
        raise MistakeError(f"{name[:40]!r} is no signal that a job can hear", "name one such as USR2")
    return number


def _work(body: SubmitBody, env: Pairs) -> Work:
    for field, path in (("cwd", body.cwd), ("stdin", body.stdin), ("stdout", body.stdout), ("stderr", body.stderr)):
        if len(path) > PATH_MAX or "\0" in path or "\n" in path:
            raise MistakeError(f"{field} is no path", "give a path of one line")
        if path and not path.startswith("/") and (field, path) != ("stderr", OWN_FILE):
            raise MistakeError(f"{field} {path[:80]!r} is not absolute", "give the whole path, from /")
    for name, value in env:
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise MistakeError(f"environment variable {name[:80]!r} cannot be", "correct its name and value")
    return Work(
        argv=tuple(body.command),
        script=body.script,
        cwd=body.cwd,
        env=environment_name(env) if env else "",
        stdin=body.stdin,
        stdout=body.stdout,
        stderr=body.stderr,
        append=body.append,
        umask=body.umask,
        grace_ms=body.grace_ms,
        notify=body.notify,
    )


@lru_cache(256)
def environment_name(env: Pairs) -> str:
    """Equal environments have equal names, so each is kept once."""
    encoded = msgspec.msgpack.encode(env)
    if len(encoded) > ENVIRONMENT_MAX:
        raise MistakeError(
            f"the environment is larger than {ENVIRONMENT_MAX} octets", "send only the variables that the job needs"
        )
    return blake2b(encoded, digest_size=12).hexdigest()
