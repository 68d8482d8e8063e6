"""The errors that callers can act on.

StatekitError
├── Unavailable (ConnectionError)    the store did not answer; try again later
├── Conflict                         the thread changed meanwhile; read again
├── Fenced                           a newer holder owns the thread; stop
├── SummaryFailed                    the summarizer gave no summary, and the policy asks for this error; nothing is lost
├── BudgetExceeded                   the thread has used up its tokens, requests or time; raise the limit or stop
├── EffectUnknown                    nobody knows whether an effect was made; ask the provider, then resolve it
├── CannotStop                       code of a node still runs; end the process
├── GaveUp                           the watchdog's attempts are used up; look at it
├── TopologyDrift                    the thread waits for a node that the graph lacks; rename it or bring it back
├── NotMade                          a replay asked for an effect that is not recorded; look, or make it by a live one
├── CheckpointMissing (LookupError)  asked for by id and not there
├── SessionMissing (LookupError)     no such session for this caller; start a new one
├── SessionEnded                     the session is closed or expired; start a new one
├── DataError (ValueError)           a value cannot be stored, or stored bytes cannot be read
│   ├── Corrupt                      checksum or envelope wrong
│   └── SchemaTooNew                 written by a later release; upgrade
└── Misuse (ValueError)              wrong configuration or argument
"""

from __future__ import annotations


class StatekitError(Exception):
    """Base of every error this package raises on purpose."""

    retryable = False


class Unavailable(StatekitError, ConnectionError):
    """The store did not answer in time; nothing is known to be saved. The driver's error is the cause.

    Raised for faults that may pass: nobody listens, a server is starting, a disk is full.
    """

    retryable = True


class Conflict(StatekitError):
    """The thread changed while the operation ran; read it again and repeat."""

    retryable = True


class Fenced(StatekitError):
    """A newer holder owns the thread, or it was deleted; stop working on it."""


class SummaryFailed(StatekitError):
    """The summarizer failed or gave no summary, and the policy says `on_error="raise"`; the history is whole."""

    retryable = True


class BudgetExceeded(StatekitError):
    """A thread has used up its tokens, requests or time, so no model was called; raise the limit to go on."""


class EffectUnknown(StatekitError):
    """Nobody knows whether an effect was made, or what it gave; it is not made again by itself.

    Look at the provider, then tell the ledger with `EffectLedger.resolve` or `statekit effects resolve`.
    """


class CannotStop(StatekitError):
    """A node hangs and cannot be ended from inside its process; it can write nothing more to its thread.

    End the process, and run such nodes with `isolation="process"`. The thread can be resumed by another one.
    """


class GaveUp(StatekitError):
    """The watchdog found something wrong, and its policy says not to try again; the thread stays as it is."""


class TopologyDrift(StatekitError):
    """A thread waits for a node that the graph does not have; resuming it would end it without a word."""


class NotMade(StatekitError):
    """A replay asked for an effect that is not recorded; it was not made."""


class CheckpointMissing(StatekitError, LookupError):
    """The checkpoint was asked for by id and is not stored."""


class SessionMissing(StatekitError, LookupError):
    """There is no such session, or it is another user's, agent's or version's: which one is not told."""


class SessionEnded(StatekitError):
    """The session was closed or has expired: it can be read, but not gone on with; start a new one."""


class DataError(StatekitError, ValueError):
    """A value cannot be stored exactly, or stored bytes cannot be read."""


class Corrupt(DataError):
    """Stored bytes fail their checksum or have no known envelope."""


class SchemaTooNew(DataError):
    """Stored bytes were written by a later release, or a state by a worker with a later version; upgrade this one."""


class Misuse(StatekitError, ValueError):
    """A setting or an argument is wrong; the message says what to change.

    Raised at once, from any call, also for what a store refuses for good: a login, a database, bucket or folder that
    does not exist or may not be used. The driver's error is then the cause.
    """
