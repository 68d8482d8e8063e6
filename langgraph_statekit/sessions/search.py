"""Search over messages by meaning, on a `BaseStore` that has an index: Postgres with pgvector, or any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, GetOp, PutOp

from langgraph_statekit.errors import Misuse

_PAGE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMessage:
    """A message that was found.

    Attributes:
        session_id: Of which session.
        user_id: Whose.
        role: `human`, `ai`, `tool` or `system`.
        text: What it says.
        score: How near it is, as the store tells: higher is nearer.
    """

    session_id: str
    user_id: str
    role: str
    text: str
    score: float | None


class MessageSearch:
    """Where messages are indexed: pass it to `SessionManager(search=...)`. It holds them in plain.

    Args:
        store: A `BaseStore` with an index: `PostgresStore.from_conn_string(url, index={"dims": 384, "embed": embed})`
            needs the extension pgvector; `embed` is your function from texts to vectors.
        namespace: Where in the store; give each tenant another one.

    Raises:
        Misuse: It is no store, or has no index.
    """

    def __init__(self, store: BaseStore, namespace: tuple[str, ...] = ("messages",)) -> None:
        if not isinstance(store, BaseStore):
            raise Misuse(f"search needs a BaseStore of LangGraph, not {type(store).__name__}")
        if not getattr(store, "index_config", None):
            raise Misuse("the store has no index: open it with index={'dims': ..., 'embed': ...}")
        if not isinstance(namespace, tuple) or not namespace or not all(isinstance(part, str) for part in namespace):
            raise Misuse(f"namespace must be a tuple of names, not {namespace!r}")
        self._store, self._namespace = store, namespace

    async def add(self, user: str, session_id: str, messages: Sequence[Any], is_async: bool) -> int:
        """Index the messages that are not indexed yet, and return how many those were."""
        place = self._place(user, session_id)
        wanted = {
            _hash(f"{message.id or number}\0{message.text}"): {
                "session_id": session_id,
                "user_id": user,
                "role": message.type,
                "text": message.text,
            }
            for number, message in enumerate(messages)
            if isinstance(message, BaseMessage) and message.text.strip()
        }
        keys, added = list(wanted), 0
        for at in range(0, len(keys), _PAGE):
            page = keys[at : at + _PAGE]
            there = await self._batch([GetOp(place, key) for key in page], is_async)
            new = [key for key, item in zip(page, there, strict=True) if item is None]
            await self._batch([PutOp(place, key, wanted[key], index=["text"]) for key in new], is_async)
            added += len(new)
        return added

    async def find(self, query: str, user: str | None, limit: int, is_async: bool) -> Sequence[FoundMessage]:
        """Return the messages that are nearest to a text."""
        place = self._place(user)
        search = self._store.asearch(place, query=query, limit=limit) if is_async else None
        found = await search if search is not None else self._store.search(place, query=query, limit=limit)
        return [FoundMessage(**item.value, score=item.score) for item in found]

    async def drop(self, user: str, session_id: str, is_async: bool) -> None:
        """Remove all that is indexed of a session."""
        place = self._place(user, session_id)
        while True:
            search = self._store.asearch(place, limit=_PAGE) if is_async else None
            found = await search if search is not None else self._store.search(place, limit=_PAGE)
            if not found:
                return
            await self._batch([PutOp(place, item.key, None) for item in found], is_async)

    async def _batch(self, ops: list[Any], is_async: bool) -> list[Any]:
        if not ops:
            return []
        return list(await self._store.abatch(ops) if is_async else self._store.batch(ops))

    def _place(self, user: str | None, session_id: str | None = None) -> tuple[str, ...]:
        # Of one length and without a sign that a store could take for a pattern.
        return *self._namespace, *(_hash(part) for part in (user, session_id) if part is not None)


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
