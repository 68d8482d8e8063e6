"""What the foundation promises holds with everything on: encryption, expiry, retention, hooks, a bounded backlog.

`pytest --all-features` does so for any tests and stores. This is a part of it that every run of the tests can afford: what
is stored, by the reference and after a death at each call, on the embedded store and on a served one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Servers

ROOT = Path(__file__).resolve().parents[1]
SUITES = ("tests/contract", "tests/model/test_model.py", "tests/crash/test_crash.py", "tests/crash/test_rotation.py")
LEFT_OUT = ("test_copying", "test_encryption", "test_tampering", "test_tenants", "at_any_request")
"""What turns on its own features, or runs on stores of its own."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_foundation_stays_green_with_every_feature_on(suite_name: str, servers: Servers, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    if suite_name == "redis":
        env["STATEKIT_TEST_REDIS_URL"] = servers.url("redis")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *SUITES, "--all-features", "--stores", suite_name, "-q", "-x"),
            *("-k", " and ".join(f"not {name}" for name in LEFT_OUT), "-p", "no:cacheprovider", "-p", "no:randomly"),
            f"--basetemp={tmp_path}/tests",
        ],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 300
