"""What does a chat cost on object storage? Shorter than the other chat: each request takes a millisecond there."""

from __future__ import annotations

from benchmarks import chat

FULL = {"turns": 40}
QUICK = {"turns": 3}
FLOOR = True
ONLY_STORE = "s3"
REPEATS = 1

run = chat.run
