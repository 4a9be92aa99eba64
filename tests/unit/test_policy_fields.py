"""The table of fields that describes a policy file: complete, and made of fields that exist."""

from tidegate.model.policy import (
    Backfill,
    Checkpoints,
    Cycle,
    Estimate,
    Fit,
    JobClass,
    Kept,
    Order,
    PolicySpec,
    Preemption,
    Queue,
    Reservations,
    Share,
)
from tidegate.wire import policy_fields
from tidegate.wire.policy_file import describe


def test_every_field_is_described():
    rows = {row.path: row for row in describe()}
    assert [row for row in rows.values() if not row.description] == []
    assert rows["name"].default == "required"
    assert rows["order.ageing_bound"].type == "duration"
    assert rows["backfill.depth"].type == "whole number from 0 or all or none"
    assert rows["estimate.from"].type == "one of limit, last-two"
    assert rows["classes.<name>.head_start"].default == "0s"


def test_the_tables_of_exceptions_name_fields_that_exist():
    records = {
        PolicySpec, Order, Backfill, Fit, Estimate, JobClass, Queue, Share, Preemption, Checkpoints, Cycle,
        Reservations, Kept,
    }  # fmt: skip
    fields = {(record.__name__, name) for record in records for name in record.__struct_fields__}
    tables = {*policy_fields.RENAMED, *policy_fields.WORDS, *policy_fields.MAIN.items()}
    tables |= {(record, name) for record, _, name in (key.partition(".") for key in policy_fields.TEXTS) if name}
    assert tables <= fields
