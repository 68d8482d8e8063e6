"""Search over messages by meaning, on a `BaseStore` that has an index: Postgres with pgvector, or any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, GetOp, PutOp, SearchItem

from langgraph_statekit.checkpoint.records import from_text, to_text
from langgraph_statekit.errors import Misuse
from langgraph_statekit.sessions.records import storable

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
                "session_id": to_text(session_id),
                "user_id": to_text(user),
                "role": message.type,
                "text": storable(message.text),
                "exact": to_text(message.text),
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
        asked: Any = {"query": storable(query), "limit": limit}
        found = await self._store.asearch(place, **asked) if is_async else self._store.search(place, **asked)
        return [_found(item) for item in found]

    async def drop(self, user: str, session_id: str | None, is_async: bool) -> None:
        """Remove all that is indexed of a session; None: of all of the user."""
        place = self._place(user, session_id)
        while True:
            found = (
                await self._store.asearch(place, limit=_PAGE) if is_async else self._store.search(place, limit=_PAGE)
            )
            if not found:
                return
            await self._batch([PutOp(item.namespace, item.key, None) for item in found], is_async)

    async def _batch(self, ops: list[Any], is_async: bool) -> list[Any]:
        if not ops:
            return []
        return list(await self._store.abatch(ops) if is_async else self._store.batch(ops))

    def _place(self, user: str | None, session_id: str | None = None) -> tuple[str, ...]:
        # Of one length and without a sign that a store could take for a pattern.
        return *self._namespace, *(_hash(part) for part in (user, session_id) if part is not None)


def _found(item: SearchItem) -> FoundMessage:
    value = item.value
    session_id, user, text = (from_text(value[name]) for name in ("session_id", "user_id", "exact"))
    return FoundMessage(session_id=session_id, user_id=user, role=value["role"], text=text, score=item.score)


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
