"""Checkpoints in a bucket, against a server that speaks S3 over a real socket."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import count

import pytest

from tests.kit.s3 import s3_server
from tidegate.checkpoint import NoCheckpointError, latest, staging
from tidegate.checkpoint.bucket import Bucket
from tidegate.checkpoint.files import MANIFEST

pytest.importorskip("s3fs")
pytest.importorskip("moto.server")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries, not of ours

RUNS = count(1)


@pytest.fixture(scope="module")
def access() -> Iterator[dict[str, str]]:
    with s3_server() as found:
        yield found


@pytest.fixture
def url(access: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """As a user gets in: by the environment alone."""
    from fsspec.config import conf, set_conf_env

    for name, value in access.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(conf, "s3", {})
    set_conf_env(conf)
    return f"s3://bucket/runs/{next(RUNS)}"


def save(place: Bucket, text: str) -> None:
    staged = place.stage()
    (staged / "deep").mkdir()
    (staged / "deep" / "state").write_text(text)
    place.publish(staged)
    assert not staged.exists()


def read(place: Bucket) -> str | None:
    last = place.latest()
    if last is None:
        return None
    text = (last / "deep" / "state").read_text()
    place.discard(last)
    return text


def test_the_last_two_stay_and_the_last_is_found(url: str) -> None:
    place = Bucket(url)
    assert read(place) is None
    for text in "abcd":
        save(place, text)
        assert read(Bucket(url)) == text
    assert place._numbers() == [3, 4]


def test_cut_at_every_write_it_is_the_old_or_the_new_and_never_half(url: str) -> None:
    class CutError(BaseException):
        pass

    writes = ("put_file", "pipe_file", "rm_file", "rm")
    step, cut = 0, True
    while cut:
        place = Bucket(f"{url}/{step}")
        for text in "abc":
            save(place, text)
        left = step
        cut = False
        with pytest.MonkeyPatch.context() as patch:
            for name in writes:

                def call(*arguments: object, real: object = getattr(place.fs, name), **named: object) -> object:
                    nonlocal left, cut
                    if not left:
                        cut = True
                        raise CutError
                    left -= 1
                    return real(*arguments, **named)  # type: ignore[operator]

                patch.setattr(place.fs, name, call)
            with suppress(CutError):
                save(place, "d")
        assert read(Bucket(f"{url}/{step}")) in {"c", "d"}
        save(Bucket(f"{url}/{step}"), "e")
        assert read(place) == "e"
        assert len(place._numbers()) == 2
        step += 1
    assert step > 4


def test_what_does_not_match_is_passed_over(url: str) -> None:
    place = Bucket(url)
    for text in ("old", "new"):
        save(place, text)
    place.fs.pipe_file(f"{place._path(2)}/deep/state", b"n")
    assert read(place) == "old"
    place.fs.pipe_file(f"{place._path(1)}/{MANIFEST}", b"{")
    assert read(place) is None


def test_the_helper_takes_the_url_from_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDE_CHECKPOINT_DIR", url)
    with staging() as place:
        (place / "state").write_text("1")
    last = latest()
    assert last is not None
    assert (last / "state").read_text() == "1"
    Bucket(url).discard(last)


def test_a_url_that_nobody_knows_is_refused() -> None:
    with pytest.raises(NoCheckpointError, match="nothing://there"):
        Bucket("nothing://there")
