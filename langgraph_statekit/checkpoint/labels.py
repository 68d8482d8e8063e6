"""Labels of checkpoints, kept as hidden rows in a namespace of their own, so that every store has them. Pure.

The row's id is the label, its parent the id of the checkpoint, and `via` the checkpoint's namespace behind an equals
sign. Hidden rows are copied and deleted with their thread, and neither listed nor loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from langgraph_statekit.checkpoint.frames import seal
from langgraph_statekit.checkpoint.records import Query, Ref, Row
from langgraph_statekit.errors import Misuse

NAMESPACE: Final = "\\u0000statekit:labels"
"""As storage text; LangGraph's namespaces are names of nodes and ids, which hold no NUL."""

OWN_LABELS: Final = "statekit:"
"""What the labels begin with that this package gives, to both ends of a rollback; every `Retention` keeps them."""


def require_label(label: object) -> None:
    """Raise `Misuse` for what is no label."""
    if not isinstance(label, str) or not label:
        raise Misuse(f"a label must be a text of at least one character, not {label!r}")


def label_row(ref: Ref, label: str) -> Row:
    """Return the row that gives a checkpoint a label (as storage text)."""
    return Row(Ref(ref.thread, NAMESPACE, label), parent=ref.id, via=f"={ref.ns}", hidden=True, body=seal(b""))


def label_query(thread: str) -> Query:
    """Return what reads all labels of a thread."""
    return Query(thread, NAMESPACE, limit=1 << 31, hidden=True)


def is_label(row: Row) -> bool:
    """Say whether a row is a label."""
    return row.ref.ns == NAMESPACE


def target_of(label: Row) -> Ref:
    """Return the checkpoint that a label names."""
    return Ref(label.ref.thread, (label.via or "=")[1:], label.parent or "")


def labels_of(rows: Iterable[Row]) -> dict[str, Ref]:
    """Return checkpoints by label, in the order of their names."""
    return dict(sorted((row.ref.id, target_of(row)) for row in rows if is_label(row)))


def labelled(rows: Sequence[Row], prefix: str = "") -> set[Ref]:
    """Return the stored checkpoints that have a label which begins so."""
    found = {target_of(row) for row in rows if is_label(row) and row.ref.id.startswith(prefix)}
    return found & {row.ref for row in rows if not row.hidden} if found else found
