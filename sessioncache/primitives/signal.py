"""The base of the private signals.  None of them reaches a user of the library."""


class Signal(Exception):  # noqa: N818 - no error: a caller of ours has an answer to each
    """Something cannot be done as things are.

    Whoever raises one has changed nothing; who called makes things ready and calls again, or says what it means as an
    error of `sessioncache.errors`.
    """
