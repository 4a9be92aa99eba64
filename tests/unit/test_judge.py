"""The judge: a process that answers in time, or is ended."""

from pathlib import Path

import pytest

from tidegate.api.policies import Question
from tidegate.app import judge as judging
from tidegate.app.judge import Judge, TooLongError, judged
from tidegate.journals.sqlite import SqliteJournal
from tidegate.model.events import PolicyChanged
from tidegate.model.policy import PolicySpec
from tidegate.wire import api
from tidegate.wire.policy_file import load_builtin

TIDE = load_builtin("tide")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    made = SqliteJournal(path, history=True)
    made.append([PolicyChanged(1, 1, TIDE)])
    made.close()
    return path


def question(*, look: bool, **choice: str) -> Question:
    return Question(TIDE, 1, api.PolicyChoice(**choice), None, 5, look)  # type: ignore[arg-type]  # texts only


def test_the_process_says_what_the_function_does(journal: Path):
    judge = Judge(journal)
    for asked in (
        question(look=True, name="easy"), question(look=False, name="easy"), question(look=True, name="tide"),
        question(look=True, text="name: a\nordr: b", source="s"),
    ):  # fmt: skip
        assert judge(asked) == judged(asked, journal)


def test_a_look_that_fails_is_told_beside_the_difference(tmp_path: Path):
    found = judged(question(look=True, name="easy"), tmp_path / "none.db")
    assert found.diff is not None
    assert found.diff.changes
    assert "there is no such journal" in found.diff.trouble


def test_what_takes_too_long_is_ended_and_the_difference_told_all_the_same(
    journal: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(judging, "LOOK_S", 0.0)
    found = Judge(journal)(question(look=True, name="easy"))
    assert found.diff is not None
    assert (bool(found.diff.changes), found.diff.effect, "took longer" in found.diff.trouble) == (True, None, True)
    monkeypatch.setattr(judging, "CHECK_S", 0.0)
    with pytest.raises(TooLongError):
        Judge(journal)(question(look=False, name="easy"))


def test_after_the_end_nothing_is_judged(journal: Path):
    judge = Judge(journal)
    judge.close()
    with pytest.raises(RuntimeError, match="exit code -9"):
        judge(question(look=False, name="easy"))


def test_a_policy_that_is_known_is_not_read_again(journal: Path):
    spec = PolicySpec("kept")
    asked = Question(TIDE, 1, api.PolicyChoice(version=3), spec, 5, look=False)
    found = judged(asked, journal)
    assert (found.spec, found.diff and found.diff.new) == (spec, "kept")
