#!/usr/bin/env python3
"""What Slurm runs in place of the command: `launcher.py RECORD COMMAND...`.

It runs the command at most once however often it is submitted, and leaves its exit where it outlives Slurm's
memory of the job. RECORD is on a disk that the nodes share with the engine.
"""

import os
import sys


def main(record: str, command: list[str]) -> int:
    try:
        with open(f"{record}.claim", "x", encoding="ascii") as file:  # noqa: PTH123 - a quick start: no pathlib
            file.write(os.environ["SLURM_JOB_ID"])
    except FileExistsError:
        sys.exit(f"launcher: {record}.claim is there: this attempt was started before")
    try:
        pid = os.posix_spawnp(command[0], command, os.environ)
    except OSError as error:
        sys.stderr.write(f"launcher: {command[0]}: {error.strerror}\n")
        return 127
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    cpu_ms = round((usage.ru_utime + usage.ru_stime) * 1000)
    with open(f"{record}.new", "w", encoding="ascii") as file:  # noqa: PTH123 - as above
        file.write(f"{max(code, 0)} {max(-code, 0)} {cpu_ms} {usage.ru_maxrss}")
    os.rename(f"{record}.new", f"{record}.exit")  # noqa: PTH104 - as above
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
