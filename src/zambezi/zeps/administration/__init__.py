"""The calls of a client that ask the broker about its streams, and that change them."""
