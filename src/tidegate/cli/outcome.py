"""How a job ended, for people and as an exit code."""

from tidegate.wire.states import COMPLETED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SIGNAL_BASE = 128


def exit_code(job: "dict[str, Any]") -> int:
    """As a shell has it: the code, or 128 and the signal; 1 where it did not come to that and did not complete."""
    if job["state"] == COMPLETED:
        return 0
    if job.get("signal"):
        return (SIGNAL_BASE + int(job["signal"])) & 0xFF
    return int(job.get("exit_code") or 1)


def told_end(job: "dict[str, Any]", name: str) -> str:
    """`job 12 failed (exit 3)`, with what else is known."""
    how = "" if job["state"] == COMPLETED else ending(job)
    return f"job {name} {str(job['state']).lower().replace('_', ' ')}" + (f" ({how})" if how else "")


def ending(job: "dict[str, Any]") -> str:
    parts = []
    if job.get("signal"):
        parts.append(f"signal {job['signal']}")
    elif job.get("exit_code"):
        parts.append(f"exit {job['exit_code']}")
    if job.get("reason"):
        parts.append(str(job["reason"]))
    return ", ".join(parts)
