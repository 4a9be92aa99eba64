"""The rule: do what directives say, tell what was seen, and know nothing of the scheduler."""
