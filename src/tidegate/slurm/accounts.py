"""`sacctmgr`, `sshare`, `sprio`, `sstat` and `sdiag`: what little of them there is to say here."""

import re

from tidegate.slurm import getopt
from tidegate.slurm.acct_fields import FIELDS, Column, Sight, rows_of
from tidegate.slurm.desk import VERSION, Answer, Call, Desk
from tidegate.slurm.sacct import fitted, header, parsable, rule
from tidegate.slurm.squeue import jobs_named, words
from tidegate.slurm.views import live
from tidegate.slurm.words import FaultError, moment
from tidegate.wire.slurm import CLUSTER

SACCTMGR = getopt.table("""
    associations,s help,h immediate,i json noheader,n oneliner,o parsable,p parsable2,P quiet,Q readonly,r usage
    verbose,v version,V yaml
""")  # fmt: skip
SSHARE = getopt.table("""
    accounts=,A all,a clusters=,M format=,o Format= helpformat,e help,h long,l noheader,n parsable,p parsable2,P
    partition,m users=,u Users,U verbose,v version,V usage
""")  # fmt: skip
SSTAT = getopt.table("""
    allsteps,a format=,o fields= helpformat,e help,h jobs=,j noconvert noheader,n parsable,p parsable2,P pidformat,i
    usage verbose,v version,V
""")  # fmt: skip
SPRIO = getopt.table("clusters=,M help,h jobs=,j long,l noheader,n norm,n user=,u version,V weights,w format=,o usage")
SDIAG = getopt.table("all,a cluster=,M help,h json reset,r sort-by-id,i sort-by-name,n version,V yaml usage")
ASSOCIATION = (
    ("Cluster", 10), ("Account", 10), ("User", 10), ("Partition", 10), ("Share", 9), ("Priority", 10), ("GrpJobs", 7),
    ("GrpTRES", 13), ("GrpSubmit", 9), ("GrpWall", 11), ("GrpTRESMins", 13), ("MaxJobs", 7), ("MaxTRES", 13),
    ("MaxTRESPerNode", 14), ("MaxSubmit", 9), ("MaxWall", 11), ("MaxTRESMins", 13), ("QOS", 20), ("Def QOS", 9),
    ("GrpTRESRunMin", 13),
)  # fmt: skip
COLUMNS = {
    "association": ASSOCIATION,
    "user": (("User", 10), ("Def Acct", 10), ("Admin", 9)),
    "account": (("Account", 10), ("Descr", 20), ("Org", 20)),
    "qos": (("Name", 10), ("Priority", 10), ("GraceTime", 10), ("Preempt", 10), ("PreemptMode", 11), ("Flags", 40),
            ("UsageFactor", 11), ("MaxWall", 11), ("MaxTRESPU", 13), ("MaxJobsPU", 9), ("MaxSubmitPU", 11)),
    "cluster": (("Cluster", 10), ("ControlHost", 15), ("ControlPort", 12), ("RPC", 5), ("Share", 9), ("QOS", 20)),
}  # fmt: skip
ENTITIES = {"a": "association", "accounts": "account", "accts": "account", "users": "user", "qos": "qos",
            "clusters": "cluster", "associations": "association", "assocs": "association"}  # fmt: skip
FORMAT = re.compile(r"([A-Za-z]+)(?:%(-?\d+))?\Z")
WIDTHS = {"qoslevel": 20, "qos": 20, "defaultaccount": 10, "defaultqos": 9}
SHARES = (("Account", -20), ("User", 10), ("RawShares", 10), ("NormShares", 11), ("RawUsage", 11),
          ("EffectvUsage", 13), ("FairShare", 10))  # fmt: skip


def sacctmgr(desk: Desk, call: Call) -> None:
    given, rest = getopt.parse("sacctmgr", call.words, SACCTMGR, ordered=False)
    told = dict(given)
    if {"version", "help", "usage"} & told.keys():
        call.answer(f"{VERSION}\n" if "version" in told else "Usage: sacctmgr [<OPTION>] [<COMMAND>]\n")
        return
    if not rest or rest[0].lower() not in {"show", "list"} or len(rest) < 2:
        what = rest[0] if rest else ""
        text = f"accounts and users come of the policy; `{what}` is not there, see docs/slurm.md"
        raise FaultError(f" error: {text}\n")
    entity = entity_of(rest[1])
    conditions = {word.partition("=")[0].lower(): word.partition("=")[2] for word in rest[2:] if "=" in word}
    bare = [word for word in rest[2:] if "=" not in word and word.lower() not in {"where", "withassoc", "withas"}]
    if entity == "user" and bare:
        conditions.setdefault("user", bare[0])
    columns = columns_of(entity, conditions.get("format", ""))
    rows = entries(desk, entity, conditions, with_accounts="associations" in told or "withassoc" in rest)
    call.answer(table(rows, columns, told))


def entity_of(text: str) -> str:
    word = text.lower()
    for known, entity in ENTITIES.items():
        if known.startswith(word) and (len(word) > 1 or known == word):
            return entity
    raise FaultError(f" Unknown condition: {text}\n")


def columns_of(entity: str, text: str) -> list[tuple[str, int]]:
    if not text:
        return list(COLUMNS[entity])
    found = []
    for word in words(text):
        read = FORMAT.match(word)
        if read is None:
            raise FaultError(f" Unknown field '{word}'\n")
        found.append((read[1], int(read[2]) if read[2] else WIDTHS.get(read[1].lower(), 10)))
    return found


def accounts_of(desk: Desk, user: str) -> list[str]:
    """One of the user's own name, and every queue of the policy."""
    return list(dict.fromkeys([user, *sorted(desk.world.policy.queues), "default"]))


def users_of(desk: Desk, conditions: dict[str, str]) -> list[str]:
    named = words(conditions.get("user", conditions.get("users", conditions.get("name", ""))))
    known = {job.spec.user for job in desk.world.jobs.values()} | {desk.access.name}
    return named or sorted(known)


def entries(desk: Desk, entity: str, conditions: dict[str, str], *, with_accounts: bool) -> list[dict[str, str]]:
    qos = ",".join(["normal", *sorted(name for name in desk.world.policy.classes if name != "normal")])
    if entity == "qos":
        return [{"name": name, "priority": "0", "gracetime": "00:00:00", "preemptmode": "cluster",
                 "usagefactor": "1.000000"} for name in qos.split(",")]  # fmt: skip
    if entity == "cluster":
        return [{"cluster": CLUSTER, "controlhost": "127.0.0.1", "controlport": "0", "rpc": "9728", "share": "1",
                 "qos": qos}]  # fmt: skip
    if entity == "account":
        accounts = dict.fromkeys(name for user in users_of(desk, conditions) for name in accounts_of(desk, user))
        return [{"account": name, "descr": name, "description": name, "org": name} for name in accounts]
    rows = []
    for user in users_of(desk, conditions):
        row = {"cluster": CLUSTER, "user": user, "defacct": user, "defaultaccount": user, "admin": "None",
               "share": "1", "fairshare": "1", "qos": qos}  # fmt: skip
        names = accounts_of(desk, user) if with_accounts or entity == "association" else [user]
        rows += [{**row, "account": name} for name in names]
    return rows


def table(rows: list[dict[str, str]], columns: list[tuple[str, int]], told: dict[str, str]) -> str:
    lines = []
    if {"parsable", "parsable2"} & told.keys():
        tail = "" if "parsable2" in told else "|"
        if "noheader" not in told:
            lines.append("|".join(name for name, _ in columns) + tail)
        lines += ["|".join(value(row, name) for name, _ in columns) + tail for row in rows]
    else:
        if "noheader" not in told:
            lines.append("".join(fitted(name, width) + " " for name, width in columns))
            lines.append("".join("-" * abs(width) + " " for _, width in columns))
        lines += ["".join(fitted(value(row, name), width) + " " for name, width in columns) for row in rows]
    return "\n".join([*lines, ""]) if lines else ""


def value(row: dict[str, str], name: str) -> str:
    return row.get(name.lower().replace(" ", ""), "")


# -- shares and priorities -----------------------------------------------------------------------------------


def sshare(desk: Desk, call: Call) -> None:
    given, _ = getopt.parse("sshare", call.words, SSHARE, ordered=False)
    told = dict(given)
    if {"version", "help", "usage"} & told.keys():
        call.answer(f"{VERSION}\n" if "version" in told else "Usage: sshare [OPTION]\n")
        return
    text = told.get("format", told.get("Format", ""))
    columns = [(name, width) for name, width in columns_of("association", text)] if text else list(SHARES)
    users = [call.peer.user] if "Users" in told or not told.get("users") else words(told["users"])
    rows = [{"account": "root", "rawusage": "0", "normshares": "1.000000", "effectvusage": "0.000000"}]
    for user in users:
        plain = {"user": user, "rawshares": "1", "normshares": "0.500000", "rawusage": "0",
                 "effectvusage": "0.000000", "fairshare": "1.000000"}  # fmt: skip
        rows += [{"account": account, **plain} for account in accounts_of(desk, user)]
    call.answer(table(rows, columns, told))


def sprio(_desk: Desk, call: Call) -> None:
    given, _ = getopt.parse("sprio", call.words, SPRIO, ordered=False)
    if "version" in dict(given):
        call.answer(f"{VERSION}\n")
        return
    text = "You are not running a supported priority plugin\n(priority/basic).\n"
    raise FaultError(f"{text}Only 'priority/multifactor' is supported.\n")


def sstat(desk: Desk, call: Call) -> None:
    given, rest = getopt.parse("sstat", call.words, SSTAT, ordered=False)
    told = dict(given)
    if {"version", "help", "usage"} & told.keys():
        call.answer(f"{VERSION}\n" if "version" in told else "Usage: sstat [OPTION] -j <jobid>\n")
        return
    if "helpformat" in told:
        call.answer("\n".join(f"{one.name:<19}" for one, _ in stat_columns("")) + "\n")
        return
    columns = stat_columns(told.get("format", told.get("fields", "")))
    rows, errors = [], ""
    for word in [*words(told.get("jobs", "")), *rest]:
        name, _, step = word.partition(".")
        job_id, index = jobs_named(desk, name)[0]
        job = desk.world.jobs.get(job_id)
        views = [view for view in live(desk.world, [job]) if view.start_ms >= 0] if job is not None else []
        if not views:
            errors += f"sstat: error: couldn't get steps for job {word}\n"
        for view in views:
            if index in {-1, view.index}:
                found = rows_of(view, desk.steps.of_jobs([job_id]).get(view.task, []))
                rows += [row for row in found if row.step and (not step or row.step == f".{step}") and row.end_ms < 0]
    sight = Sight(call.now, "", "noconvert" in told, "", is_whole=True)
    if {"parsable", "parsable2"} & told.keys():
        call.answer(parsable(rows, columns, sight, told), errors)
        return
    lines = [] if "noheader" in told else [header(columns), rule(columns)]
    lines += ["".join(fitted(column.value(row, sight), width) + " " for column, width in columns) for row in rows]
    call.answer("\n".join([*lines, ""]), errors)


STATS = (
    "JobID MaxVMSize MaxVMSizeNode MaxVMSizeTask AveVMSize MaxRSS MaxRSSNode MaxRSSTask AveRSS MaxPages MaxPagesNode "
    "MaxPagesTask AvePages MinCPU MinCPUNode MinCPUTask AveCPU NTasks AveCPUFreq ReqCPUFreqMin ReqCPUFreqMax "
    "ReqCPUFreqGov ConsumedEnergy MaxDiskRead MaxDiskReadNode MaxDiskReadTask AveDiskRead MaxDiskWrite "
    "MaxDiskWriteNode MaxDiskWriteTask AveDiskWrite TRESUsageInAve TRESUsageInMax TRESUsageInMaxNode "
    "TRESUsageInMaxTask TRESUsageInMin TRESUsageInMinNode TRESUsageInMinTask TRESUsageInTot TRESUsageOutAve "
    "TRESUsageOutMax TRESUsageOutMaxNode TRESUsageOutMaxTask TRESUsageOutMin TRESUsageOutMinNode TRESUsageOutMinTask "
    "TRESUsageOutTot"
)
NARROW = {"AveDiskRead": 12, "AveDiskWrite": 12}
"""Narrower than in sacct."""


def stat_columns(text: str) -> list[tuple[Column, int]]:
    found = []
    for word in words(text) or STATS.split():
        name = word.partition("%")[0]
        column = FIELDS.get(name.lower())
        if column is None:
            raise FaultError(f'sstat: error: Invalid field requested: "{name}"\n')
        found.append((column, NARROW.get(column.name, column.width)))
    return found


# -- diagnosis -----------------------------------------------------------------------------------------------


def sdiag(desk: Desk, call: Call) -> None:
    given, _ = getopt.parse("sdiag", call.words, SDIAG, ordered=False)
    if "version" in dict(given):
        call.answer(f"{VERSION}\n")
        return
    call.say(diagnosis(desk, call))


def diagnosis(desk: Desk, call: Call) -> Answer:
    world = desk.world
    now = f"{moment(call.now, '%a %b %d %H:%M:%S %Y')} ({call.now // 1000})"
    began = f"{moment(desk.began_ms, '%a %b %d %H:%M:%S %Y')} ({desk.began_ms // 1000})"
    waiting = sum(job.id not in world.arrays and not world.runs_of(job.id) for job in world.jobs.values())
    bar = "*" * 55
    return Answer(
        f"{bar}\nsdiag output at {now}\nData since      {began}\n{bar}\n"
        "Server thread count:  1\nAgent queue size:     0\nAgent count:          0\nAgent thread count:   0\n"
        "DBD Agent queue size: 0\n\n"
        f"Jobs submitted: {world.next_job - 1}\nJobs started:   {desk.past.ended_count() + len(world.runs)}\n"
        f"Jobs completed: {desk.past.ended_count()}\nJobs canceled:  0\nJobs failed:    0\n\n"
        f"Job states ts:  {now}\nJobs pending:   {waiting}\nJobs running:   {len(world.runs)}\n\n"
        "Main schedule statistics (microseconds):\n"
        f"\tLast cycle:   0\n\tMax cycle:    0\n\tTotal cycles: {world.cycle}\n\tMean cycle:   0\n"
        f"\tMean depth cycle:  0\n\tLast queue length: {waiting}\n\n"
    )
