"""The one exception tree of ptxmend.

    PtxmendError
    ├── InputError        what a person gave is wrong: a file, an option, a task, a configuration
    ├── CandidateError    what the candidate gave is wrong; a tool turns it into a verdict
    │   ├── PtxSyntaxError    (sandbox.ptx)  text that is not PTX
    │   ├── PlanError         (sandbox.ptx)  a launch plan that cannot be used
    │   └── LaunchRefused     (sandbox)      a launch no device would accept
    └── InfraError        judging failed for a reason that is not the candidate's
        ├── CannotJudge       this machine has not what it takes (an instruction the emulator lacks)
        ├── ToolMissing       an external program or package was not found
        ├── WorkerLost        a worker process died or outran its time
        └── ModelError        (agent)        a model's service failed

An `InfraError` is never a verdict: it is retried, and a turn that still lacks an answer is missing, not wrong.
Every message says what was expected, what was found, where, and what to do.
"""


class PtxmendError(Exception):
    """Root of every error that ptxmend raises on purpose."""


class InputError(PtxmendError):
    """What a person gave is wrong; the message says what was expected and what to do."""


class CandidateError(PtxmendError):
    """What the candidate gave is wrong; tools turn it into a verdict."""


class LaunchRefused(CandidateError):
    """A launch that no device would accept: too many threads, too much shared memory, `.reqntid` broken."""


class InfraError(PtxmendError):
    """Judging failed for a reason that is not the candidate's."""


class CannotJudge(InfraError):
    """This machine has not what it takes to judge; the message names what is lacking."""


class ToolMissing(InfraError):
    """An external program or package was not found; the message says how to get it."""


class WorkerLost(InfraError):
    """A worker process died or outran its time; what it was judging has no verdict."""
