"""The rule: thin and quick to start. What is heavy is imported by the command that needs it, through `app`."""
