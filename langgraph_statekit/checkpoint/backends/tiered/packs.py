"""Objects of threads that never change: packs, and large values, which several packs may name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeVar

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.tiered.layout import (
    PACK,
    ColdHead,
    Keys,
    Pack,
    PackRef,
    Told,
    ValueRef,
    decode_pack,
    digest_of,
    encode_pack,
    folded,
    is_pack,
    new_name,
    offloaded,
    parts_of,
    thread_of,
    told_in,
)
from langgraph_statekit.checkpoint.cache import Cache
from langgraph_statekit.errors import Corrupt

T = TypeVar("T")

_PACKS_BYTES: Final = 32 << 20


class Gone(Exception):
    """An object that a head or a pack names does not exist, or no longer."""


class Made(NamedTuple):
    """What was uploaded: packs that the next head may name, and all new objects by name."""

    packs: list[PackRef]
    names: list[bytes]


Check = Callable[[bytes], object]
"""Raises `Corrupt` for bytes that are not those of the object."""
Rescue = Callable[[ColdHead, bytes, Check], bytes | None]
"""Returns an object by its name from elsewhere."""


class Packs:
    """Reads and stores them.

    Args:
        bucket: Makes the requests.
        folder: That of all threads.
        place: What messages call the store.
        offload_bytes: From this size on a frame is a large value.
    """

    def __init__(self, bucket: Bucket, folder: str, place: str, offload_bytes: int) -> None:
        self._bucket, self._folder, self._place, self._offload_bytes = bucket, folder, place, offload_bytes
        self._held = Cache[str, bytes](_PACKS_BYTES, _PACKS_BYTES // 4)

    def read(
        self, head: ColdHead, refs: Iterable[PackRef], rescue: Rescue | None = None, *, missing: bool = True
    ) -> list[Pack]:
        """Return packs of a head.

        Args:
            head: The head.
            refs: Which packs.
            rescue: Asked for what is damaged.
            missing: Whether it is asked for what does not exist, too.

        Raises:
            Gone: One is missing: the head is out of date, or the thread is damaged.
        """
        checks = dict.fromkeys((ref.name for ref in refs), partial(decode_pack, head.thread))
        return list(self._objects(head, checks, rescue, missing=missing, hold=True).values())

    def thread(self, head: ColdHead, rescue: Rescue | None = None, *, missing: bool = True) -> Thread:
        """Return a whole thread; arguments and errors as in `read`.

        One round of requests, and one more if it has large values.
        """
        whole = folded(self.read(head, head.packs, rescue, missing=missing), whole=True)
        checks = {ref.name: partial(value_of, ref) for ref in whole.values.values()}
        values = self._objects(head, checks, rescue, missing=missing, hold=False)
        frames = {**whole.frames, **{key: values[ref.name] for key, ref in whole.values.items()}}
        return thread_of(head, replace(whole, frames=frames, values={}))

    def upload(self, head: ColdHead, pack: Pack, needed: Mapping[str, bytes], notes: Mapping[str, bytes]) -> Made:
        """Store a pack, in pieces if it is large, and what else must be there before the head that it is made for.

        The piece that has the checkpoints comes last: if it is there, all that it needs was there.

        Args:
            head: The head, without the pack.
            pack: The pack.
            needed: Objects without which it cannot be read.
            notes: Others.
        """
        large = any(len(data) >= self._offload_bytes for data in pack.frames.values())
        pack, new = offloaded(pack, self._offload_bytes, self._known(head) if large else ())
        made: dict[bytes, tuple[PackRef, bytes]] = {}
        *parts, end = parts_of(pack)
        for part in (*parts, end):
            # Only the last tells a head: of an upload that died before it there is nothing to tell.
            earlier = [ref for ref, _ in made.values()]
            name, data = new_name(PACK), encode_pack(part, head if part is end else None, earlier)
            made[name] = PackRef(name, len(data), len(part.rows)), data
        first = {self.key(head, name): data for name, data in new.items()}
        first |= {self.key(head, name): data for name, (_, data) in made.items()}
        key, last = first.popitem()
        self._bucket.put_all({**first, **needed})
        self._bucket.put_all({key: last, **notes})
        for name, (_, data) in made.items():
            self._held.put(self.key(head, name), data, len(data))
        return Made([ref for ref, _ in made.values()], [*made, *new])

    def told(self, keys: Keys) -> tuple[list[Told], list[Corrupt]]:
        """Return all packs in a thread's folder that tell the heads that they were made for, and what is damaged."""
        listed = [key for key in self._bucket.list(keys.root) if is_pack(key)]
        told, bad = [], []
        for key, found in self._bucket.get_many(listed).items():
            try:
                told.append(told_in(bytes.fromhex(key.rpartition("/")[2]), found.data))
            except Corrupt as error:
                bad.append(Corrupt(f"object {key}: {error}"))
        return [each for each in told if each is not None], bad

    def get(self, head: ColdHead, name: bytes) -> bytes | None:
        """Return an object of a life, whether it can be read or not; None if it does not exist."""
        held = self.held(head, name)
        if held is not None:
            return held
        found = self._bucket.get(self.key(head, name))
        return None if found is None else found.data

    def held(self, head: ColdHead, name: bytes) -> bytes | None:
        """Return an object that was stored or read here a while ago, if it is still held."""
        return self._held.get(self.key(head, name))

    def put(self, head: ColdHead, name: bytes, data: bytes) -> None:
        """Store an object as it is elsewhere, or was here."""
        self._bucket.put(self.key(head, name), data)

    def remove(self, head: ColdHead, names: Sequence[bytes]) -> None:
        """Remove objects of a life."""
        self._bucket.delete([self.key(head, name) for name in names])

    def key(self, head: ColdHead, name: bytes) -> str:
        """Return the key of an object of a life."""
        return Keys.of(self._folder, head.thread).pack(head.epoch, name)

    def forget(self, keys: Sequence[str]) -> None:
        """Hold nothing of these objects."""
        gone = set(keys)
        self._held.forget(lambda key: key in gone)

    def _known(self, head: ColdHead) -> list[ValueRef]:
        """Return values that packs of a head name, as far as these are held."""
        held = [self.held(head, ref.name) for ref in head.packs]
        return [ref for data in held if data for ref in decode_pack(head.thread, data).values.values()]

    def _objects(
        self,
        head: ColdHead,
        checks: Mapping[bytes, Callable[[bytes], T]],
        rescue: Rescue | None,
        *,
        missing: bool,
        hold: bool,
    ) -> dict[bytes, T]:
        """Return what checks make of objects, by name."""
        held = {name: self.held(head, name) for name in checks}
        read = self._bucket.get_many([self.key(head, name) for name, data in held.items() if data is None])
        found: dict[bytes, T] = {}
        for name, check in checks.items():
            key = self.key(head, name)
            data = held[name] or (read[key].data if key in read else None)
            error: Exception = Gone(f"object {key}")
            if data is not None:
                try:
                    found[name] = check(data)
                except Corrupt as damaged:
                    error = Corrupt(f"object {key} of {self._place}: {damaged}")
                else:
                    if hold:
                        self._held.put(key, data, len(data))
                    continue
            saved = rescue(head, name, check) if rescue is not None and (data is not None or missing) else None
            if saved is None:
                raise error
            found[name] = check(saved)
        return found


def value_of(ref: ValueRef, data: bytes) -> bytes:
    """Return the bytes of a value; raise `Corrupt` if they are not."""
    if digest_of(data) != ref.digest:
        raise Corrupt(f"a value of {len(data)} bytes is not the one that was stored")
    return data
