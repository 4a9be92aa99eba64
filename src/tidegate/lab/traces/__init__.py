"""The rule: a trace of whatever kind in, a `Workload` out; a bad line is counted, never dropped in silence.

Formats are known by what is in the file, not by its name. Only a file that is no trace at all is refused.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidegate.lab.traces.build import Builder
from tidegate.lab.traces.gpujobs import read_gpu_jobs, read_philly, read_sia
from tidegate.lab.traces.openb import read_pods
from tidegate.lab.traces.sacct import EXPORT, read_sacct
from tidegate.lab.traces.swf import is_line, read_swf
from tidegate.lab.traces.table import Header, Table, parse_header
from tidegate.lab.traces.text import Text
from tidegate.lab.workload import Problems, TraceError, TraceOptions, Workload

HEADER_WITHIN_LINES = 50

ReadTable = Callable[[Table, Builder], Workload]


class Format(NamedTuple):
    """A table is of this format if its header has at least `enough` of `names`."""

    names: frozenset[str]
    enough: int
    read: ReadTable


FORMATS = (
    Format(frozenset({"jobid", "jobidraw"}), 1, read_sacct),
    Format(frozenset({"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}), 4, read_pods),
    Format(frozenset({"timestamp", "duration", "num_gpus", "cluster"}), 3, read_philly),
    Format(frozenset({"name", "time", "application", "num_replicas"}), 3, read_sia),
    Format(frozenset({"job_id", "submit_time", "num_gpu", "duration"}), 3, read_gpu_jobs),
)
BESIDES = (
    (frozenset({"sn", "cpu_milli", "memory_mib"}), "a list of nodes, not of jobs: give it as the nodes file"),
    (frozenset({"pool", "nodes"}), "a pools file, not a trace: give it as the pools file"),
    (frozenset({"vc", "node num"}), "a pools file, not a trace: give it as the pools file"),
)
READABLE = (
    "readable are SWF (plain or gzip), Philly CSV (timestamp,duration,num_gpus,cluster), "
    "Sia CSV (name,time,application,num_replicas), openb pods CSV (name,cpu_milli,memory_mib,...), "
    "training jobs CSV (job_id,submit_time,num_gpu,duration) and `sacct -P` text with its header, "
    f"as from: {EXPORT}"
)


def read_trace(path: Path | str, *, options: TraceOptions | None = None) -> Workload:
    """Raises TraceError where the file as a whole is no trace."""
    path = Path(path)
    options = options or TraceOptions()
    problems = Problems(options.shown_max)
    build = Builder(options, problems)
    with Text(path, problems) as text:
        found = _detect(path, text.sample())
        if found is None:
            return read_swf(path, text.lines(), build)
        form, header, line = found
        return form.read(Table(path, header, line, text.lines()), build)


def _detect(path: Path, sample: list[str]) -> tuple[Format, Header, int] | None:
    """The table's format with its header and the header's line; None: SWF. The first telling line decides."""
    for line, text in enumerate(sample[:HEADER_WITHIN_LINES], 1):
        if text.lstrip().startswith(";"):
            return None
        header = parse_header(text)
        names = frozenset(header.names)
        for form in FORMATS:
            if len(form.names & names) >= form.enough:
                return form, header, line
        if len(names) == 1 and text.lower().split()[:2] == ["jobid", "jobname"]:
            raise TraceError(f"{path} is sacct's table for people, with columns cut; export with: {EXPORT}")
        for marks, what in BESIDES:
            if marks <= names:
                raise TraceError(f"{path} is {what}")
        if is_line(text):
            return None
    raise TraceError(f"{path} is no trace that Tidegate knows; {READABLE}")
