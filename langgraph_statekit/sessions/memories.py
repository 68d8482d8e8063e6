"""What users asked to be remembered, across their sessions, on LangGraph's `BaseStore`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

from langgraph.store.base import BaseStore, Item, SearchItem

from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.errors import Misuse
from langgraph_statekit.sessions.records import checked_metadata, required_user, storable
from langgraph_statekit.sessions.words import ENDS, matching

_PAGE: Final = 100
MOST_TEXT: Final = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One thing that a user asked to be remembered.

    Attributes:
        memory_id: The same for the same text of a user.
        text: In the user's words.
        source: Where it was said, as the application told: a session, a message.
        created_at: When it was first remembered, as the store tells.
    """

    memory_id: str
    text: str
    source: Mapping[str, Any]
    created_at: datetime


class Memories:
    """What users asked to be remembered; sync and async on one object, as the store allows.

    Nothing gets in but by `remember`: nothing is taken from conversations by itself. Each user's are in a namespace of
    their own, named by a hash, so that no user id can reach into another one's.

    Args:
        store: Any `BaseStore` of LangGraph.
        namespace: Where in the store; give each tenant another one.

    Raises:
        Misuse: The store is none.
    """

    def __init__(self, store: BaseStore, namespace: tuple[str, ...] = ("memories",)) -> None:
        if not isinstance(store, BaseStore):
            raise Misuse(f"memories need a BaseStore of LangGraph, such as InMemoryStore(), not {type(store).__name__}")
        if not isinstance(namespace, tuple) or not namespace or not all(isinstance(part, str) for part in namespace):
            raise Misuse(f"namespace must be a tuple of names, not {namespace!r}")
        self.store = store
        self._namespace = namespace

    def remember(self, user_id: str, text: str, source: Mapping[str, Any] | None = None) -> Memory:
        """Keep a text for a user until it is forgotten, and return it; the same again changes nothing.

        Call it only for what the user asked for: see `find_requests`, `memory_node` and `memory_tools`.

        Args:
            user_id: The user.
            text: What to remember, of at most 4,000 characters.
            source: JSON values that say where it was said; None: nothing.

        Raises:
            Misuse: One of them is none of this.
        """
        return run_sync(self.kept(user_id, text, source, False))

    async def aremember(self, user_id: str, text: str, source: Mapping[str, Any] | None = None) -> Memory:
        """Async version of `remember`."""
        return await self.kept(user_id, text, source, True)

    def forget(self, user_id: str, about: str) -> Sequence[Memory]:
        """Remove what a user means, and return it: the memory of this id or text, else all that have all of its words.

        Raises:
            Misuse: `about` is empty; to remove all, call `forget_all`.
        """
        return run_sync(self._forget(user_id, about, False))

    async def aforget(self, user_id: str, about: str) -> Sequence[Memory]:
        """Async version of `forget`."""
        return await self._forget(user_id, about, True)

    def forget_all(self, user_id: str) -> Sequence[Memory]:
        """Remove all that was remembered for a user, and return it."""
        return run_sync(self.dropped(user_id, False))

    async def aforget_all(self, user_id: str) -> Sequence[Memory]:
        """Async version of `forget_all`."""
        return await self.dropped(user_id, True)

    def list_memories(self, user_id: str) -> Sequence[Memory]:
        """Return what is remembered for a user, oldest first."""
        return run_sync(self.listed(user_id, False))

    async def alist_memories(self, user_id: str) -> Sequence[Memory]:
        """Async version of `list_memories`."""
        return await self.listed(user_id, True)

    async def kept(self, user_id: str, text: str, source: Mapping[str, Any] | None, is_async: bool) -> Memory:
        """See `remember`."""
        value = checked_memory(text, source)
        place = self._place(required_user(user_id))
        key = blake2b(_same(value["text"]).encode(), digest_size=16).hexdigest()
        there = await self._call(is_async, "get", place, key)
        if there is None:
            # Not to be embedded: nobody asked for that.
            await self._call(is_async, "put", place, key, value, index=False)
            there = await self._call(is_async, "get", place, key)
        return _memory(there)

    async def _forget(self, user_id: str, about: str, is_async: bool) -> Sequence[Memory]:
        if not isinstance(about, str) or not about.strip():
            raise Misuse("say what to forget: a text, or the id of a memory; to forget all there is, call forget_all")
        there = await self.listed(user_id, is_async)
        found = [memory for memory in there if memory.memory_id == about]
        found = found or [there[at] for at in matching(about, [memory.text for memory in there])]
        for memory in found:
            await self._call(is_async, "delete", self._place(user_id), memory.memory_id)
        return found

    async def dropped(self, user_id: str, is_async: bool) -> Sequence[Memory]:
        """See `forget_all`."""
        gone: list[Memory] = []
        while there := await self.listed(user_id, is_async):
            for memory in there:
                await self._call(is_async, "delete", self._place(user_id), memory.memory_id)
            gone += there
        return gone

    async def listed(self, user_id: str, is_async: bool) -> Sequence[Memory]:
        """See `list_memories`."""
        place = self._place(required_user(user_id))
        found: dict[str, Memory] = {}
        while page := await self._call(is_async, "search", place, limit=_PAGE, offset=len(found)):
            before = len(found)
            found.update({item.key: _memory(item) for item in page})
            if len(page) < _PAGE or len(found) == before:
                break
        return sorted(found.values(), key=lambda memory: (memory.created_at, memory.memory_id))

    async def _call(self, is_async: bool, method: str, *args: Any, **options: Any) -> Any:
        if is_async:
            return await getattr(self.store, f"a{method}")(*args, **options)
        return getattr(self.store, method)(*args, **options)

    def _place(self, user_id: str) -> tuple[str, ...]:
        # Of one length and without a sign that a store could take for a pattern.
        return *self._namespace, blake2b(user_id.encode(), digest_size=16).hexdigest()


def checked_memory(text: object, source: object = None) -> dict[str, Any]:
    """Return what is stored of a memory.

    Raises:
        Misuse: It is none.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > MOST_TEXT:
        raise Misuse(f"a memory must be a text of 1 to {MOST_TEXT:,} characters that is not blank")
    about = checked_metadata({} if source is None else source, "the source of a memory")
    return {"text": storable(text.strip()), "source": json.dumps(about)}


def _same(text: str) -> str:
    """Return a text as `normal` does, but with codes and passwords, which differ by case, as they are."""
    return " ".join(word if any(map(str.isdigit, word)) else word.casefold() for word in text.split()).strip(ENDS)


def _memory(item: Item | SearchItem) -> Memory:
    return Memory(
        memory_id=item.key,
        text=str(item.value.get("text", "")),
        source=json.loads(item.value.get("source") or "{}"),
        created_at=item.created_at,
    )
