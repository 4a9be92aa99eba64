"""The rule: what is measured, compared and rehearsed runs on the live loop; nothing here schedules."""
