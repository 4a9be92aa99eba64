"""The rule: what people and programs see of the live server. Reads the world, writes nothing but the inbox.

`http` speaks the protocol, `access` says who asks, `service` answers; `live` has the ports of the live loop.
"""
