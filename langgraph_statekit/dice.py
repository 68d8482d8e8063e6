"""Random numbers that nobody else seeds or draws.

A program that seeds Python's generator, so that its runs can be repeated, would give two processes the same versions of
channels; and it would get other numbers itself, wherever a saver drew between them.
"""

from __future__ import annotations

import os
from random import Random
from typing import Final

RANDOM: Final = Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=RANDOM.seed)  # else it would draw what its parent draws
