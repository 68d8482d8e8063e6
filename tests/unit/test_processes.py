"""Which process of which host somebody is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from langgraph_statekit.processes import RUNNING, UNKNOWN, Process

FORK = """
import os
from langgraph_statekit.processes import RUNNING, Process
parent = Process.here()
if os.fork() == 0:
    here = Process.here()
    os._exit(0 if here.pid == os.getpid() and here != parent and parent.state == here.state == RUNNING else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")
def test_a_fork_is_another_process_than_its_parent() -> None:
    assert subprocess.run([sys.executable, "-c", FORK], check=False).returncode == 0


def test_a_process_of_another_host_is_not_known() -> None:
    here = Process.here()
    assert here.pid == os.getpid()
    assert here.state == (RUNNING if here.start else UNKNOWN)
    assert here._replace(host="elsewhere").state == UNKNOWN
