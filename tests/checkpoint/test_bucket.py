"""Checkpoints in a bucket, against a server that speaks S3 over a real socket."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import count

import pytest

from tidegate.checkpoint import NoCheckpointError, latest, staging
from tidegate.checkpoint.bucket import Bucket
from tidegate.checkpoint.files import MANIFEST

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto.server")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries, not of ours

BUCKETS = count(1)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def url(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """As a user gets in: by the environment alone."""
    monkeypatch.setenv("FSSPEC_S3_ENDPOINT_URL", endpoint)
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    from fsspec.config import conf, set_conf_env

    monkeypatch.setitem(conf, "s3", {})
    set_conf_env(conf)
    bucket = f"bucket-{next(BUCKETS)}"
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(bucket)
    return f"s3://{bucket}/runs/12"


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
