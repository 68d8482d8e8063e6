"""Makes the golden stores of the current format anew: `python -m tests.golden.make`.

Only before a format is released. After that its folder never changes; a new format gets a folder, and content, of its own.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import closing
from pathlib import Path

from langgraph_statekit.checkpoint.frames import FORMAT
from tests.golden.content import KEYS, fill, fill_encrypted
from tests.golden.kit import ENCRYPTED, GOLDEN, KINDS, dump
from tests.servers import Servers
from tests.stores_table import STORES


def main() -> None:
    target = GOLDEN / f"format_{FORMAT}"
    shutil.rmtree(target, ignore_errors=True)
    with closing(Servers()) as servers, tempfile.TemporaryDirectory() as directory:
        for kind in sorted(set(KINDS.values())):
            store = STORES[kind](servers.url, Path(directory))
            try:
                with store.open() as saver:
                    fill(saver)
                dump(store, target / kind)
            finally:
                store.clean()
        sealed = STORES["sqlite"](servers.url, Path(directory))
        with sealed.open(encryption=KEYS) as saver:
            fill_encrypted(saver)
        dump(sealed, target / ENCRYPTED)


if __name__ == "__main__":
    main()
