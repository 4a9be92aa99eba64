"""`--json`: as Slurm's data parser 0.0.38 writes it."""

import os
from typing import Any

import msgspec

from tidegate.model.base import FOREVER_MS
from tidegate.slurm.acct_fields import Row, rows_of
from tidegate.slurm.nodes import NodeView, load
from tidegate.slurm.steps import Step
from tidegate.slurm.views import View
from tidegate.slurm.words import UNLIMITED, gid_of, uid_of
from tidegate.wire.slurm import CLUSTER

VERSION = {"version": {"major": 22, "micro": 8, "minor": 5}, "release": "22.05.8"}
EMPTY = (
    "admin_comment", "batch_features", "burst_buffer", "burst_buffer_state", "cluster_features", "container",
    "cpus_per_tres", "excluded_nodes", "federation_origin", "federation_siblings_active",
    "federation_siblings_viable", "licenses", "mcs_label", "memory_per_tres", "prefer", "required_nodes",
    "state_description", "system_comment", "tres_bind", "tres_freq", "tres_per_job", "tres_per_socket",
    "tres_per_task", "het_job_id_set",
)  # fmt: skip
ZERO = (
    "delay_boot", "max_cpus", "max_nodes", "het_job_id", "het_job_offset", "minimum_tmp_disk_per_node", "preempt_time",
    "pre_sus_time", "resize_time", "sockets_per_board", "suspend_time", "time_minimum", "derived_exit_code",
    "tasks_per_board",
)  # fmt: skip
NULL = (
    "core_spec", "thread_spec", "cores_per_socket", "cpu_frequency_minimum", "cpu_frequency_maximum",
    "cpu_frequency_governor", "nice", "tasks_per_core", "tasks_per_socket", "profile", "shared", "sockets_per_node",
    "threads_per_core",
)  # fmt: skip


def text_of(plugin: str, name: str, parts: dict[str, Any]) -> str:
    meta = {"plugin": {"type": plugin, "name": name}, "Slurm": VERSION}
    whole = msgspec.json.encode({"meta": meta, "errors": [], **parts})
    return msgspec.json.format(whole, indent=2).decode().replace("/", "\\/") + "\n"


def document(views: list[View], now: int) -> str:
    """Of squeue."""
    return text_of("openapi/v0.0.38", "Slurm OpenAPI v0.0.38", {"jobs": [job_of(view, now) for view in views]})


def seconds(ms: int) -> int:
    return max(0, ms) // 1000


def job_of(view: View, now: int) -> dict[str, Any]:
    job, said, spec = view.job, view.said, view.job.spec
    work, array = spec.work, spec.array
    is_task = view.index is not None and view.index >= 0
    found: dict[str, Any] = dict.fromkeys(EMPTY, "") | dict.fromkeys(ZERO, 0) | dict.fromkeys(NULL)
    found |= {
        "account": view.account, "accrue_time": seconds(job.submit_ms),
        "array_job_id": job.id if array is not None else 0, "array_task_id": view.index if is_task else None,
        "array_max_tasks": array.at_once_max if array is not None else 0,
        "array_task_string": view.tasks_text if view.indices else "", "association_id": 1,
        "batch_flag": said.kind == "batch", "batch_host": view.nodes[0][0] if view.nodes else "", "flags": [],
        "cluster": CLUSTER, "command": said.command, "comment": said.comment, "contiguous": False,
        "billable_tres": float(view.cpus) if view.nodes else None, "cpus_per_task": said.cpus_per_task or None,
        "deadline": seconds(spec.deadline_ms) if spec.deadline_ms < FOREVER_MS else 0,
        "dependency": said.dependency if view.state == "PENDING" else "",
        "eligible_time": seconds(max(job.submit_ms, spec.begin_ms)),
        "end_time": end_of(view), "exit_code": view.code << 8 | view.signal, "features": said.features,
        "gres_detail": [], "group_id": gid_of(spec.user), "group_name": spec.user, "job_id": view.raw,
        "job_state": view.state, "last_sched_evaluation": seconds(now), "name": spec.name, "nodes": view.node_list,
        "tasks_per_node": said.tasks_per_node, "cpus": view.cpus, "node_count": view.node_count, "tasks": view.tasks,
        "partition": job.pool, "memory_per_node": said.node_memory_mib or None,
        "memory_per_cpu": said.cpu_memory_mib or None, "minimum_cpus_per_node": said.cpus_per_task or 1,
        "priority": view.priority, "qos": view.qos, "reboot": False, "requeue": said.requeue,
        "restart_cnt": max(0, view.attempt - 1), "resv_name": said.reservation,
        "show_flags": ["SHOW_ALL", "SHOW_DETAIL", "SHOW_LOCAL"], "start_time": seconds(view.start_ms),
        "state_reason": view.reason, "standard_error": work.stderr or work.stdout if work is not None else "",
        "standard_input": (work.stdin if work is not None else "") or "/dev/null",
        "standard_output": work.stdout if work is not None else "", "submit_time": seconds(job.submit_ms),
        "time_limit": None if view.limit_ms == UNLIMITED else view.limit_ms // 60_000, "tres_per_node": said.gres,
        "tres_req_str": view.tres, "tres_alloc_str": view.tres if view.nodes else "", "user_id": uid_of(spec.user),
        "user_name": spec.user, "wckey": said.wckey,
        "current_working_directory": work.cwd if work is not None else "",
    }  # fmt: skip
    if view.nodes:
        found["job_resources"] = resources(view)
    return found


def end_of(view: View) -> int:
    if view.end_ms >= 0:
        return seconds(view.end_ms)
    return seconds(view.start_ms + view.limit_ms) if view.start_ms >= 0 and view.limit_ms != UNLIMITED else 0


def resources(view: View) -> dict[str, Any]:
    layout = view.layout
    each = view.memory_mib // max(1, len(layout.names))
    nodes = [
        {
            "sockets": {str(core): {"cores": {"0": "allocated"}} for core in range(cpus)},
            "nodename": name, "cpus_used": 0, "memory_used": 0, "memory_allocated": each,
        }
        for name, cpus in zip(layout.names, layout.cpus, strict=True)
    ]  # fmt: skip
    return {
        "nodes": view.node_list, "allocated_cores": view.cpus, "allocated_hosts": len(nodes), "allocated_nodes": nodes,
    }  # fmt: skip


# -- sacct ---------------------------------------------------------------------------------------------------


def accounted(views: list[View], of_tasks: dict[int, list[Step]], now: int) -> str:
    jobs = []
    for view in views:
        first, *steps = rows_of(view, of_tasks.get(view.task, []))
        jobs.append(accounted_job(view, first, steps, now))
    return text_of("openapi/dbv0.0.38", "Slurm OpenAPI DB v0.0.38", {"jobs": jobs})


def code_of(row: Row) -> dict[str, Any]:
    if row.signal:
        return {"status": "SIGNALED", "return_code": 0, "signal": {"signal_id": row.signal, "name": str(row.signal)}}
    return {"status": "ERROR" if row.code else "SUCCESS", "return_code": row.code}


def times(row: Row, now: int) -> dict[str, Any]:
    cpu_ms = max(0, row.cpu_ms)
    spent = {"seconds": cpu_ms // 1000, "microseconds": cpu_ms % 1000 * 1000}
    return {
        "elapsed": row.elapsed_ms(now) // 1000, "end": seconds(row.end_ms), "start": seconds(row.start_ms),
        "suspended": 0, "system": {"seconds": 0, "microseconds": 0}, "total": spent, "user": spent,
    }  # fmt: skip


def accounted_job(view: View, row: Row, steps: list[Row], now: int) -> dict[str, Any]:
    job, spec, said = view.job, view.job.spec, view.said
    array = spec.array
    work = spec.work
    index = view.index if view.index is not None and view.index >= 0 else None
    limits = {"max": {"running": {"tasks": array.at_once_max if array is not None else 0}}}
    return {
        "account": view.account,
        "comment": {"administrator": None, "job": said.comment or None, "system": None},
        "allocation_nodes": view.node_count if view.nodes else 0,
        "array": {"job_id": job.id if array is not None else 0, "limits": limits,
                  "task": view.tasks_text if view.indices else None, "task_id": index},
        "association": {"account": view.account, "cluster": CLUSTER, "partition": None, "user": spec.user},
        "cluster": CLUSTER, "constraints": said.features, "container": None,
        "derived_exit_code": {"status": "SUCCESS", "return_code": 0},
        "time": times(row, now) | {"eligible": seconds(max(job.submit_ms, spec.begin_ms)),
                                   "submission": seconds(job.submit_ms),
                                   "limit": None if view.limit_ms == UNLIMITED else view.limit_ms // 60_000},
        "exit_code": code_of(row), "flags": [], "group": spec.user,
        "het": {"job_id": 0, "job_offset": None}, "job_id": view.raw, "name": spec.name, "nodes": row.nodes,
        "partition": job.pool, "priority": view.priority, "qos": view.qos,
        "required": {"CPUs": view.cpus, "memory": view.memory_mib}, "kill_request_user": None,
        "reservation": {"id": 0, "name": said.reservation or None},
        "state": {"current": view.state, "reason": view.reason},
        "steps": [accounted_step(view, step, now) for step in steps],
        "tres": {"allocated": tres(view) if view.nodes else [], "requested": tres(view)},
        "user": spec.user, "wckey": {"wckey": said.wckey, "flags": []},
        "working_directory": work.cwd if work is not None else "",
    }  # fmt: skip


def accounted_step(view: View, row: Row, now: int) -> dict[str, Any]:
    return {
        "time": times(row, now), "exit_code": code_of(row),
        "nodes": {"count": row.node_count, "range": row.nodes, "list": []}, "tasks": {"count": row.tasks},
        "pid": None, "state": row.state.partition(" ")[0],
        "step": {"job_id": view.raw, "id": row.step[1:], "name": row.name},
        "statistics": {"CPU": {"actual_frequency": 0}, "energy": {"consumed": 0}},
        "task": {"distribution": "Unknown"},
    }  # fmt: skip


def tres(view: View) -> list[dict[str, Any]]:
    found = [("cpu", None, 1, view.cpus), ("mem", None, 2, view.memory_mib), ("node", None, 4, view.node_count),
             ("billing", None, 5, view.cpus), ("gres", "gpu", 1001, view.gpus)]  # fmt: skip
    return [{"type": kind, "name": name, "id": number, "count": count} for kind, name, number, count in found if count]


# -- sinfo ---------------------------------------------------------------------------------------------------


def nodes_document(nodes: list[NodeView], began_ms: int) -> str:
    return text_of("openapi/v0.0.38", "Slurm OpenAPI v0.0.38", {"nodes": [node_of(node, began_ms) for node in nodes]})


def node_of(node: NodeView, began_ms: int) -> dict[str, Any]:
    system = os.uname()
    used = f"cpu={node.cpus_used},mem={node.memory_used}M" if node.cpus_used else None
    flags = ["DRAIN"] if node.state.startswith("drain") else []
    plain = {"drained": "idle", "draining": "mixed"}.get(node.state, node.state)
    features = "" if node.features == "(null)" else node.features
    return {
        "architecture": system.machine, "burstbuffer_network_address": "", "boards": 1, "boot_time": seconds(began_ms),
        "comment": "", "cores": 1, "cpu_binding": 0, "cpu_load": round(load() * 100), "extra": "",
        "free_memory": node.memory - node.memory_used, "cpus": node.cpus, "last_busy": seconds(began_ms),
        "features": features, "active_features": features, "gres": node.gres.replace("(null)", ""),
        "gres_drained": "N/A", "gres_used": node.gres_used, "mcs_label": "", "name": node.name,
        "next_state_after_reboot": "invalid", "address": "127.0.0.1", "hostname": system.nodename, "state": plain,
        "state_flags": flags, "next_state_after_reboot_flags": [],
        "operating_system": f"{system.sysname} {system.release} {system.version}", "owner": None,
        "partitions": [node.pool], "port": 6818, "real_memory": node.memory,
        "reason": node.row.why if flags or node.state == "down" else "", "reason_changed_at": 0,
        "reason_set_by_user": None, "slurmd_start_time": seconds(began_ms), "sockets": node.cpus, "threads": 1,
        "temporary_disk": 0, "weight": 1, "tres": node.tres, "slurmd_version": "22.05.8",
        "alloc_memory": node.memory_used, "alloc_cpus": node.cpus_used, "idle_cpus": node.cpus - node.cpus_used,
        "tres_used": used, "tres_weighted": float(node.cpus_used),
    }  # fmt: skip
