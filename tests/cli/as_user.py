"""`python as_user.py UID tide words`: a client as another user, who may not be able to read these sources."""

import os
import pkgutil
import sys
from importlib import import_module

import tidegate.app
import tidegate.cli
from tidegate.cli.main import main

ON_THE_HOME = {"backup", "token", "up"}

if __name__ == "__main__":
    uid = int(sys.argv[1])
    for room in (tidegate.cli, tidegate.app) if sys.argv[2] in ON_THE_HOME else (tidegate.cli,):
        for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            import_module(module.name)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    sys.exit(main(sys.argv[2:]))
