"""JSON without the package `json`: the C parts it is made of, without the `re` it imports (as long as a start)."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner
except ImportError:  # an interpreter without the C parts
    make_scanner = None  # type: ignore[assignment, misc]


class Reading:
    """What the scanner looks up: plain JSON, nothing hooked in."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: "dict[str, str]" = {}  # noqa: RUF012 (the scanner asks for it by this name)


def loads(octets: bytes) -> "Any":
    """The value; ValueError for anything that is not JSON in UTF-8."""
    text = octets.decode().strip(" \t\r\n")
    if make_scanner is None:
        import json

        return json.loads(text)
    try:
        value, end = make_scanner(Reading)(text, 0)  # type: ignore[arg-type]
    except (StopIteration, RecursionError, SystemError):  # the scanner looks for an exception of `json`, not loaded
        raise ValueError("not JSON") from None
    if end != len(text):
        raise ValueError("more than one value")
    return value


def dumps(value: "Any") -> str:
    """On one line, in ASCII."""
    if make_scanner is None:
        import json

        return json.dumps(value, separators=(",", ":"))
    encode = make_encoder(None, refuse, encode_basestring_ascii, None, ":", ",", False, False, False)
    return "".join(encode(value, 0))


def refuse(value: object) -> str:
    raise TypeError(f"{type(value).__name__} is not JSON")
