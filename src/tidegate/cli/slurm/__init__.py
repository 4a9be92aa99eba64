"""The rule: Slurm's commands know nothing; they hand their words to the server and do what only a client can."""
