"""One run of HyperQueue, in a process and a folder of its own: `python hyperqueue_child.py TASKS CORES`.

Server and worker of the Python package live in this process, so its CPU time is that of all of it.
"""

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

WARM_UP = 200


def main() -> None:
    tasks, cores = int(sys.argv[1]), int(sys.argv[2])
    hyperqueue, workers = import_module("hyperqueue"), import_module("hyperqueue.cluster")
    worker = workers.WorkerConfig(cores=cores)
    with hyperqueue.LocalCluster(server_dir=str(Path("server").absolute()), worker_config=worker) as cluster:
        client = cluster.client()
        run(client, hyperqueue.Job(), WARM_UP)
        before = sum(os.times()[:4])
        run(client, hyperqueue.Job(), tasks)
        used = sum(os.times()[:4]) - before
    print(json.dumps({"cpu_s": used}))


def run(client: Any, job: Any, tasks: int) -> None:
    for _ in range(tasks):
        job.program(["/bin/true"], stdout=None, stderr=None)
    submitted = client.submit(job)
    if not client.wait_for_jobs([submitted]):
        sys.exit("a task failed")


if __name__ == "__main__":
    main()
