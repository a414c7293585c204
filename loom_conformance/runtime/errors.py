"""What the runtime raises, apart from what its store raises."""

from __future__ import annotations


class RuntimeFault(Exception):
    """The root of all that the runtime raises on purpose."""


class ExecutionAlreadyExistsError(RuntimeFault):
    """The chosen execution id is taken: its sequence 0 was read back (ADR 0103, D2).

    Nothing was folded, told to `on_event` or run, and the existing execution is untouched.
    """

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.execution_id = execution_id

    def __str__(self) -> str:
        return f"execution {self.execution_id!r} already exists; nothing of this start ran"


class StorageWriteError(RuntimeFault):
    """An append did not become durable, or nobody can say whether it did; see `__cause__`.

    Attributes:
        execution_id: the execution, as the caller named it.
        sequence: the first sequence that is not known to be durable.
    """

    def __init__(self, execution_id: str, sequence: int) -> None:
        super().__init__(execution_id, sequence)
        self.execution_id = execution_id
        self.sequence = sequence

    def __str__(self) -> str:
        cause = "" if self.__cause__ is None else f": {self.__cause__}"
        return f"execution {self.execution_id!r} could not write sequence {self.sequence}{cause}"


class StartFencedOutError(RuntimeFault):
    """Both tries of a start were stale, and yet sequence 0 is absent (ADR 0103, L20).

    Whoever holds the newer token wrote nothing and may be dead, so a dispatcher tries again.
    """

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.execution_id = execution_id

    def __str__(self) -> str:
        return (
            f"the start of {self.execution_id!r} was fenced out by a holder that wrote nothing; "
            "start it again under a fresh fence"
        )


class ExecutionNotFoundError(RuntimeFault):
    """There is no log of this execution."""

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.execution_id = execution_id

    def __str__(self) -> str:
        return f"execution {self.execution_id!r} has no log; start it first"


class UnknownWorkflowError(RuntimeFault):
    """A log names a workflow that this runtime was not given."""

    def __init__(self, workflow: str) -> None:
        super().__init__(workflow)
        self.workflow = workflow

    def __str__(self) -> str:
        return f"no workflow named {self.workflow!r} here; register it with the runtime"


class CorruptLogError(RuntimeFault):
    """A log cannot be folded: no run of the runtime writes what it holds.

    Attributes:
        execution_id: the execution.
        sequence: where it went wrong.
        reason: what does not fit there.
    """

    def __init__(self, execution_id: str, sequence: int, reason: str) -> None:
        super().__init__(execution_id, sequence, reason)
        self.execution_id = execution_id
        self.sequence = sequence
        self.reason = reason

    def __str__(self) -> str:
        return f"the log of {self.execution_id!r} is corrupt at {self.sequence}: {self.reason}"
