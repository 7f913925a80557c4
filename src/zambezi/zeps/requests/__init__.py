"""Request and reply: a client asks, one of several servers answers. `envelope` has the messages on the wire.

Programs use `Stream.request` and `Stream.serve` of a client.
"""
