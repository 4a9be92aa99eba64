"""What every body of the API is made of."""

from typing import Annotated

import msgspec
from msgspec import Meta

NAME_MAX = 200

Name = Annotated[str, Meta(max_length=NAME_MAX)]
Count = Annotated[int, Meta(ge=0, le=1 << 40)]
Millis = Annotated[int, Meta(ge=0, le=1 << 53)]


class Body(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """An unknown field in a request is a mistake of the client, and said so."""


class Whole(Body, omit_defaults=False):
    """An answer whose every field is always there: scripts count on it."""
