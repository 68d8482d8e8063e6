"""Thread ids that name an agent, its version and an instance of it. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from langgraph_statekit.errors import Misuse

_PARTS: Final = re.compile(r"(.+?)_v(0|[1-9][0-9]{0,17})_(.+)", re.DOTALL)
_MARKS: Final = re.compile(r"%|_(?=v[0-9])")
_ESCAPED: Final = re.compile(r"%(25|5F)")
_MOST: Final = 10**18


class ThreadId(NamedTuple):
    """What a thread id of `thread_id` names."""

    agent: str
    version: int
    instance: str


def thread_id(agent: str, version: int, instance: str) -> str:
    """Return the thread id of an instance of an agent: `pricing_v3_eu-1` for `("pricing", 3, "eu-1")`.

    No two instances share one, whatever characters they have: in the agent's name `%` and an `_` before `v` and a digit
    are percent-encoded.

    Args:
        agent: Name of the agent, not empty.
        version: Its version, 0 or more.
        instance: What tells its threads apart, not empty: a customer, an order, a conversation.

    Raises:
        Misuse: One of them is none of this.
    """
    if not (isinstance(agent, str) and isinstance(instance, str) and agent and instance):
        raise Misuse(f"agent and instance must be texts that are not empty, not {agent!r} and {instance!r}")
    if type(version) is not int or not 0 <= version < _MOST:
        raise Misuse(f"the version of an agent must be a whole number from 0 to {_MOST:.0e}, not {version!r}")
    escaped = _MARKS.sub(lambda found: "%25" if found[0] == "%" else "%5F", agent)
    return f"{escaped}_v{version}_{instance}"


def parse_thread_id(text: str) -> ThreadId:
    """Return agent, version and instance of a thread id that `thread_id` made.

    Raises:
        Misuse: It made no such id.
    """
    found = _PARTS.fullmatch(text)
    if found is not None:
        agent = _ESCAPED.sub(lambda mark: "%" if mark[1] == "25" else "_", found[1])
        parsed = ThreadId(agent, int(found[2]), found[3])
        if thread_id(*parsed) == text:
            return parsed
    raise Misuse(f"{text!r} is no thread id of the form agent_v3_instance: make it with thread_id(agent, 3, instance)")
