"""Every command that the desk answers, by its name. Those that begin with a dash are what clients ask among them."""

from tidegate.slurm.accounts import sacctmgr, sdiag, sprio, sshare, sstat
from tidegate.slurm.desk import Run
from tidegate.slurm.sacct import sacct
from tidegate.slurm.sbatch import sbatch, wait
from tidegate.slurm.scancel import scancel
from tidegate.slurm.scontrol import scontrol
from tidegate.slurm.sinfo import sinfo
from tidegate.slurm.squeue import squeue
from tidegate.slurm.srun import job_state, salloc, srun, step_end

COMMANDS: dict[str, Run] = {
    "sbatch": sbatch,
    "srun": srun,
    "salloc": salloc,
    "squeue": squeue,
    "sacct": sacct,
    "sinfo": sinfo,
    "scancel": scancel,
    "scontrol": scontrol,
    "sacctmgr": sacctmgr,
    "sshare": sshare,
    "sprio": sprio,
    "sstat": sstat,
    "sdiag": sdiag,
    "-wait": wait,
    "-state": job_state,
    "-step-end": step_end,
}
