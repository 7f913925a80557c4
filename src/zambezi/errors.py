"""The base class of all errors."""


class ZambeziError(Exception):
    """Base class of every error that Zambezi raises on purpose.

    Each package derives its own errors from it, so `except ZambeziError` catches failures of messaging and lets
    mistakes in the program through. The text says what was wrong and where.
    """


def described(error: BaseException) -> str:
    """Return an error in words, for logs; an error that is a mistake of the program has the name of its class, too.

    >>> described(ZambeziError("no room")), described(KeyError("x"))
    ('no room', "KeyError: 'x'")
    """
    return str(error) if isinstance(error, ZambeziError) else f"{type(error).__name__}: {error}"
