from os import PathLike

class Health:
    """Whether a log directory works: give the same one to all logs in it."""

    @property
    def failure(self) -> OSError | None:
        """The first thing that failed, as an OSError; None while all is well. From any thread."""

    def fail(self, problem: OSError, where: str | PathLike[str] | None = None) -> bool:
        """Takes the directory offline for an OSError. False: it is not the disk's fault, and nothing has changed."""

    def fileno(self) -> int:
        """Readable once the directory has failed."""
    @property
    def descriptors(self) -> tuple[int, int]: ...
