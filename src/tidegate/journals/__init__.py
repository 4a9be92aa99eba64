"""The rule: keep events in order, safe before anybody is told, and give them back; know nothing of what they mean.

The rows of the history come from the loop, which knows."""
