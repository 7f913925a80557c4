"""The root of the family of errors."""


class ZambeziError(Exception):
    """Base class of every error that Zambezi raises on purpose.

    Each package derives its own family from it, so `except ZambeziError` catches what went wrong in
    messaging and lets mistakes in the program through. The text says what was wrong and where.
    """
