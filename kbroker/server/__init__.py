"""Composition: the rooms of one node, wired together."""


class StartError(Exception):
    """Raised when a broker cannot start; its text is one sentence that says why and what to do."""
