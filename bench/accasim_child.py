"""One run of AccaSim, in a process and a folder of its own: `python accasim_child.py TRACE.swf NODES CORES`.

AccaSim 1.1.3 was written for Python 3.5 and old numpy. What they renamed since is given back under the old name;
AccaSim itself is untouched. Its result files go to the current folder.
"""

import collections
import collections.abc
import json
import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter

import numpy as np


def give_back_old_names() -> None:
    for name in collections.abc.__all__:
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))
    for kind in (bool, float, int, object):
        if kind.__name__ not in vars(np):
            setattr(np, kind.__name__, kind)


def main() -> None:
    trace, nodes, cores = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    give_back_old_names()
    allocators, schedulers, simulators = (
        import_module(f"accasim.base.{name}_class") for name in ("allocator", "scheduler", "simulator")
    )

    machine = Path("machine.json")  # no memory: no trace of ours asks for any, and AccaSim divides by what is asked for
    machine.write_text(json.dumps({"groups": {"all": {"core": cores}}, "resources": {"all": nodes}}))
    results = Path("results")
    results.mkdir()
    policy = schedulers.EASYBackfilling(allocators.FirstFit())
    began = perf_counter()
    simulator = simulators.Simulator(trace, str(machine), policy, RESULTS_FOLDER_PATH=str(results))
    simulator.start_simulation()
    wall = perf_counter() - began
    with (results / f"sched-{Path(trace).name}").open() as schedule:
        ended = sum(1 for line in schedule if line.strip())
    print(json.dumps({"jobs": ended, "wall_s": wall}))


if __name__ == "__main__":
    main()
