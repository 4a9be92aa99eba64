"""`tide generate`."""

import sys
from pathlib import Path

from tidegate.cli.failure import FailureError
from tidegate.cli.options import Options


def generate(options: Options) -> int:
    from tidegate.app.replay import GenerateError, GenerateOptions, write_swf

    wish = GenerateOptions(
        jobs=0 if options.days else options.jobs,
        days=options.days,
        procs=options.procs,
        seed=options.seed,
        load=options.load,
        users=options.users,
        bursts=options.bursts,
        burst_factor=options.burst_factor,
        burst_hours=options.burst_hours,
        burst_small_percent=options.burst_small_percent,
    )
    try:
        jobs = write_swf(Path(options.out) if options.out else sys.stdout, wish)
    except (GenerateError, OSError) as error:
        raise FailureError(str(error)) from error
    print(f"{jobs:,} jobs for {wish.procs:,} processors, seed {wish.seed}", file=sys.stderr)
    return 0
