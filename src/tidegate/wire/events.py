"""Events as bytes: msgpack, one map an event, its type in `type`; a group of events is an array of them.

FORMAT is raised when an older journal could not be read as it is; readers then translate. Format 1 kept each event
in a row of its own.
"""

from collections.abc import Sequence

import msgspec

from tidegate.model.events import Event

FORMAT = 2

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)
_group_decoder: msgspec.msgpack.Decoder[list[Event]] = msgspec.msgpack.Decoder(list[Event])

encode = _encoder.encode
decode = _decoder.decode
encode_group = _encoder.encode
decode_group = _group_decoder.decode

GROUP_HEADER = b"\xdd"
"""What msgpack puts before an array whose length follows in four octets."""


def join(bodies: Sequence[bytes]) -> bytes:
    """Encoded events as one encoded group."""
    return b"".join((GROUP_HEADER, len(bodies).to_bytes(4, "big"), *bodies))
