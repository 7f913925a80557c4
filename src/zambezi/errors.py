"""The base class of all errors."""


class ZambeziError(Exception):
    """Base class of every error that Zambezi raises on purpose.

    Each package derives its own errors from it, so `except ZambeziError` catches failures of messaging and lets
    mistakes in the program through. The text says what was wrong and where.
    """
