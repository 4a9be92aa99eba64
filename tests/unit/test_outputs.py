"""Patterns of output paths, and the files of tasks that name none."""

import pytest

from tidegate.model.jobs import Array, Job, JobSpec, Shape
from tidegate.wire.outputs import fill, output_path


def job(number: int, name: str = "train", array: Array | None = None) -> Job:
    return Job(number, 0, 0, "main", JobSpec("ann", Shape(()), 0, name=name, array=array))


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("plain", "plain"),
        ("%j", "12"),
        ("log/%j_%a.%t", "log/12_5.2"),
        ("%u/%x-%n", "ann/train-train"),
        ("100%%", "100%"),
        ("%%j", "%j"),
        ("%%%j", "%12"),
        ("%%%%", "%%"),
        ("%", "%"),
        ("%q %", "%q %"),
        ("%j%", "12%"),
        ("", ""),
    ],
)
def test_patterns(pattern: str, path: str) -> None:
    assert fill(pattern, job(12), 5, 2) == path


def test_a_name_makes_no_directories() -> None:
    assert fill("%x.out", job(1, name="../../etc/passwd"), 0, 1) == ".._.._etc_passwd.out"


def test_files_of_the_home_are_spread() -> None:
    array = Array((0, 1))
    assert output_path("/h", job(12), 0, 1) == output_path("/h", job(12), 0, 7) == "/h/output/0/12.out"
    assert output_path("/h", job(123_456), 0, 1) == "/h/output/123/123456.out"
    assert output_path("/h", job(12, array=array), 99_999, 1) == "/h/output/0/12/99/99999.out"
