"""The launcher where no compiled one is at hand: the same arguments as launcher.c, one process a job.

Run by the keeper as `python -I -S -E launcher.py ARGUMENTS`, in a session of its own, with the socket for
replies on descriptor 4. Every name of the environment carries a prefix, so that nothing of it speaks to this
interpreter or its libraries, which may still be root's; the prefix goes before the job sees it.
"""

import errno
import os
import signal
import sys
import time

PREFIX = b"~"
REPLIES = 4
MACHINE, CANNOT_RUN, NOT_FOUND = 125, 126, 127
DIRECTORIES_MADE_MAX = 4
USUAL_PATH = b"/usr/bin:/bin"
NO_ROOM = frozenset(
    {errno.ENOSPC, errno.EIO, errno.ENFILE, errno.EMFILE, errno.ENOMEM, errno.EAGAIN}
)  # nobody's job is at fault, whoever's path it was
PR_SET_CHILD_SUBREAPER = 36
TASK_PID = b"SLURM_TASK_PID"


class FailureError(Exception):
    def __init__(self, code: int, doing: str, what: str, error: OSError) -> None:
        super().__init__(f"cannot {doing} {what}: {os.strerror(error.errno or 0)}")
        self.code = MACHINE if error.errno in NO_ROOM else code


def reply(text: str) -> None:
    os.write(REPLIES, text.encode(errors="surrogateescape"))


def claim(record: str, name: str, keeper: int) -> None:
    """As in launcher.c: the claim first, and only then the look whether its keeper still lives."""
    line = f"c {name} {os.getpid()} {time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000}\n".encode()
    try:
        fd = os.open(record, os.O_WRONLY | os.O_APPEND)
        written = os.write(fd, line)
        os.close(fd)
    except OSError as error:
        raise FailureError(MACHINE, "write", record, error) from None
    if written < len(line):
        raise FailureError(MACHINE, "write", record, OSError(errno.ENOSPC, "")) from None
    if os.getppid() != keeper:
        os._exit(MACHINE)


def write_to(path: str, text: bytes, doing: str) -> None:
    try:
        fd = os.open(path, os.O_WRONLY)
        os.write(fd, text)
        os.close(fd)
    except OSError as error:
        raise FailureError(MACHINE, doing, path, error) from None


def make_directories(path: str) -> None:
    missing: list[str] = []
    place = os.path.split(path)[0]
    while len(missing) < DIRECTORIES_MADE_MAX and not os.access(place, os.F_OK):
        missing.append(place)
        place = os.path.split(place)[0]
    for place in reversed(missing):
        try:
            os.mkdir(place, 0o711)
        except FileExistsError:
            pass


def open_output(path: str, append: bool, uid: int, gid: int) -> int:
    """The default output: in a directory of ours, so made with our rights and then given to the user."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NOCTTY | (0 if append else os.O_TRUNC)
    try:
        try:
            fd = os.open(path, flags, 0o600)
        except FileNotFoundError:
            make_directories(path)
            fd = os.open(path, flags, 0o600)
        if uid >= 0:
            os.fchown(fd, uid, gid)
    except OSError as error:
        raise FailureError(MACHINE, "open the output", path, error) from None
    return fd


def open_theirs(path: str, flags: int, doing: str) -> int:
    try:
        return os.open(path, flags | os.O_NOCTTY, 0o666)
    except OSError as error:
        raise FailureError(CANNOT_RUN, doing, path, error) from None


def become(uid: int, gid: int, groups: str) -> None:
    try:
        os.setgroups([int(group) for group in groups.split(",") if group])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise FailureError(MACHINE, "become", "the job's user", error) from None


def redirect(stdin: str, stdout: str, stderr: str, append: bool, *, together: bool) -> None:
    out = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
    if stdin:
        os.dup2(open_theirs(stdin, os.O_RDONLY, "open the input"), 0)
    if stdout:
        os.dup2(open_theirs(stdout, out, "open the output"), 1)
        if not stderr and together:
            os.dup2(1, 2)
    if stderr:
        os.dup2(1 if stderr == stdout else open_theirs(stderr, out, "open the output"), 2)


def run(argv: list[str]) -> None:
    """`os.execvpe` would import a module first, which the job's user may not be allowed to read."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by this interpreter; the job would inherit it
        signal.signal(ignored, signal.SIG_DFL)
    environment = {name.removeprefix(PREFIX): value for name, value in os.environb.items() if name[:1] == PREFIX}
    if TASK_PID in environment:  # nobody knew it before
        environment[TASK_PID] = str(os.getpid()).encode()
    name = argv[0]
    path = environment.get(b"PATH", USUAL_PATH).decode(errors="surrogateescape").split(":")
    said = OSError(errno.ENOENT, "")
    for place in [name] if "/" in name else [f"{directory or '.'}/{name}" for directory in path]:
        try:
            os.execve(place, argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                os.execve("/bin/sh", ["/bin/sh", place, *argv[1:]], environment)
            if error.errno != errno.EACCES:
                raise FailureError(CANNOT_RUN, "run", name, error) from None
            said = error
    if said.errno == errno.EACCES:
        raise FailureError(CANNOT_RUN, "run", name, said)
    if "/" in name and os.access(name, os.F_OK):
        raise FailureError(CANNOT_RUN, "find the interpreter that the first line names of", name, said)
    raise FailureError(NOT_FOUND, "run", name, said)


def job(arguments: list[str]) -> None:
    _, record, name, keeper, oom, count = arguments[:6]
    if record:
        claim(record, name, int(keeper))
    cgroups, rest = arguments[6 : 6 + int(count)], arguments[6 + int(count) :]
    for procs in cgroups:
        write_to(procs, b"0", "join")
    uid, gid, groups, umask, cwd, output, errors, append, stdin, stdout, stderr, *argv = rest
    if oom:
        write_to("/proc/self/oom_score_adj", oom.encode(), "reset")
    if output:
        fd = open_output(output, append == "1", int(uid or -1), int(gid or -1))
        os.dup2(fd, 1)
        os.dup2(fd, 2)
    if errors:
        os.dup2(open_output(errors, append == "1", int(uid or -1), int(gid or -1)), 2)
    if uid:
        become(int(uid), int(gid), groups)
    os.umask(int(umask, 8))
    try:
        os.chdir(cwd)
    except OSError as error:
        raise FailureError(CANNOT_RUN, "go to the directory", cwd, error) from None
    redirect(stdin, stdout, stderr, append == "1", together=not errors)
    run(argv)


def as_keeper(argv: list[str]) -> None:
    """Becomes the program, as the parent of all orphans below it where the machine lets us say so."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass  # then the keeper looks for them by their environment
    os.execv(argv[0], argv)


def main() -> None:
    if sys.argv[1] == "--keeper":
        as_keeper(sys.argv[2:])
    os.set_inheritable(REPLIES, False)
    try:
        job(sys.argv[1:])
    except FailureError as failure:
        reply(f"!{sys.argv[1]} {failure.code} {failure}")
        os._exit(failure.code)


if __name__ == "__main__":
    main()
