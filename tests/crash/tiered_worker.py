"""A process that grows numbered threads in a tiered store, archives and reads them at random, and may be killed.

python -m tests.crash.tiered_worker URL OPTIONS-AS-JSON WORKER ROUNDS LOG: each acknowledged put is a line in the log.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from tests.faces import LONG, checkpoint, config, metadata
from tests.stores_under_test import open_here

THREADS = 20


def main(url: str, options: str, worker: str, rounds: str, log: str) -> None:
    dice = random.Random()
    saver: Any = open_here(url, json.loads(options))
    with saver, Path(log).open("a") as lines:
        for _ in range(int(rounds)):
            thread = f"{worker} {dice.randrange(THREADS)}"
            found = saver.get_tuple(config(thread))
            values = found.checkpoint["channel_values"] if found else {"log": [LONG]}
            number = len(values["log"])
            made = checkpoint({"log": [*values["log"], number]}, {"log": f"{number:06}.{dice.random()}"})
            at = saver.put(found.config if found else config(thread), made, metadata(number), made["channel_versions"])
            lines.write(f"{thread}\t{made['id']}\t{number}\n")
            lines.flush()
            saver.put_writes(at, [("log", number)], "task")
            other = f"{dice.choice('01')} {dice.randrange(THREADS)}"
            if dice.random() < 0.5:
                saver.archive(other)
            elif (seen := saver.get_tuple(config(other))) is not None:
                log_of = seen.checkpoint["channel_values"]["log"]
                assert log_of == [LONG, *range(1, len(log_of))], log_of


if __name__ == "__main__":
    main(*sys.argv[1:])
