"""The workflow runtime of ADR 0103, in executable form."""

from .assembly import Assembly
from .dispatch import LocalDispatcher, LocalWorkerRuntime, SupervisingDispatcher, is_superseded
from .errors import (
    CorruptLogError,
    ExecutionAlreadyExistsError,
    ExecutionNotFoundError,
    RuntimeFault,
    StartFencedOutError,
    StorageWriteError,
    UnknownWorkflowError,
)
from .interface import (
    Dispatch,
    Dispatcher,
    Handle,
    Leases,
    Runtime,
    RuntimeDeps,
    Schedule,
    Timer,
    Timers,
    Worker,
)
from .journal import ExecutionJournal
from .kernel import ExecutionHandle, WorkflowRuntime, append_batch_of
from .read_model import ReadModel
from .state import Event, ExecutionState, fold, fold_all, load
from .timers import TimerService
from .workflow import StepContext, Workflow

__all__ = [
    "Assembly",
    "CorruptLogError",
    "Dispatch",
    "Dispatcher",
    "Event",
    "ExecutionAlreadyExistsError",
    "ExecutionHandle",
    "ExecutionJournal",
    "ExecutionNotFoundError",
    "ExecutionState",
    "Handle",
    "Leases",
    "LocalDispatcher",
    "LocalWorkerRuntime",
    "ReadModel",
    "Runtime",
    "RuntimeDeps",
    "RuntimeFault",
    "Schedule",
    "StartFencedOutError",
    "StepContext",
    "StorageWriteError",
    "SupervisingDispatcher",
    "Timer",
    "TimerService",
    "Timers",
    "UnknownWorkflowError",
    "Worker",
    "Workflow",
    "WorkflowRuntime",
    "append_batch_of",
    "fold",
    "fold_all",
    "is_superseded",
    "load",
]
