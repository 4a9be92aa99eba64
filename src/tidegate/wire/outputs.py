"""Where the output of a task goes."""

from pathlib import Path

from tidegate.model.jobs import Job


def outputs_of(home: Path, job: Job, index: int, attempt: int) -> tuple[str, str]:
    return str(home / "output" / f"{job.id}_{index}"), str(home / "output" / f"{job.id}_{index}")
