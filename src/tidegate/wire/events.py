"""Events as bytes: msgpack, one map an event, its type in `type`.

FORMAT is raised when an older record could not be read as it is; readers then translate.
"""

import msgspec

from tidegate.model.events import Event

FORMAT = 1

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)

encode = _encoder.encode
decode = _decoder.decode
