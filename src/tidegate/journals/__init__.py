"""The rule: keep events in order and give them back; know nothing of what they mean."""
