"""What may become of a history on its way into a prompt: plain settings, frozen and JSON-serialisable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias, get_args

from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.errors import Misuse

Unit: TypeAlias = Literal["turns", "messages", "tokens", "bytes", "fraction"]
Size: TypeAlias = tuple[Unit, float]
"""A number and its unit: a turn begins with the user's message; a fraction is one of the model's window."""
UNITS: Final[tuple[str, ...]] = get_args(Unit)
VERBATIM_KINDS: Final = ("code", "diff", "legal", "quote", "traceback")


def size(value: Any, name: str) -> Size:
    """Return a size; raise `Misuse` for what is none."""
    if not (_is_list(value) and len(value) == 2 and value[0] in UNITS):
        raise Misuse(f"{name} must be a pair of a unit ({', '.join(UNITS)}) and a number, not {value!r}")
    unit, number = value
    if unit == "fraction":
        require_numbers(float, 0, **{name: number})
        if not 0 < number <= 1:
            raise Misuse(f"{name} is a fraction of the model's window, above 0 up to 1, not {number!r}")
        return ("fraction", float(number))
    require_numbers(int, 0, **{name: number})
    return (unit, int(number))


def conditions(value: Any) -> tuple[tuple[Size, ...], ...]:
    """Return a trigger as alternatives, each a group of sizes that must all be reached."""
    if not _is_list(value) or not value:
        raise Misuse(f"trigger must be a size such as ('turns', 20) or a list of them, not {value!r}")
    groups = [value] if isinstance(value[0], str) else value
    if not all(_is_list(group) and group for group in groups):
        raise Misuse(f"trigger must be a list of sizes such as ('turns', 20), or of lists of them, not {value!r}")
    found = tuple(
        (size(group, "trigger"),) if isinstance(group[0], str) else tuple(size(part, "trigger") for part in group)
        for group in groups
    )
    if any(number <= 0 for group in found for _, number in group):
        raise Misuse(f"a trigger must be above 0, not {value!r}")
    return found


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultPolicy:
    """How old tool results are shortened; the messages themselves stay as they are.

    Attributes:
        keep: The newest results that stay whole.
        digest: `auto` shows older ones as one line (name, key arguments, key result); `off` leaves them whole.
        exclude_tools: Names of tools whose results stay whole.
        verbatim_kinds: Kinds of text that stay whole: `code`, `diff`, `legal`, `quote`, `traceback`. Not tracebacks by
            default: their digest is the error.
        offload_chars: A longer result of these kinds is shown as a mark such as `[DOC_SUMMARY:id]`; None for never.
        numbers: Shows numbers of a million and more in digests in readable form where the name of a result's field says
            that it is an amount, a count or a size; all others, and arguments, are exact.
    """

    keep: int = 3
    digest: Literal["auto", "off"] = "auto"
    exclude_tools: tuple[str, ...] = ()
    verbatim_kinds: tuple[str, ...] = VERBATIM_KINDS[:-1]
    offload_chars: int | None = None
    numbers: bool = False

    def __post_init__(self) -> None:
        require_numbers(int, 0, keep=self.keep)
        if self.offload_chars is not None:
            require_numbers(int, 1, offload_chars=self.offload_chars)
        if self.digest not in ("auto", "off"):
            raise Misuse(f"digest must be 'auto' or 'off', not {self.digest!r}")
        for name in ("exclude_tools", "verbatim_kinds"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(each, str) for each in value):
                raise Misuse(f"{name} must be a list of names, not {value!r}")
            object.__setattr__(self, name, tuple(value))
        unknown = set(self.verbatim_kinds) - set(VERBATIM_KINDS)
        if unknown:
            raise Misuse(f"verbatim_kinds are {', '.join(VERBATIM_KINDS)}, not {', '.join(sorted(unknown))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPolicy:
    """When a history is compacted, how much of it, and what stays.

    The defaults: as soon as 20 turns are unsummarized the first 15 become a summary of at most 200 characters, and the
    last 5 stay whole. So short a summary keeps few facts: pins go beside it, and `recommended()` gives it more room.

    Attributes:
        trigger: A size, or several: one of them suffices; in a group, `[("turns", 5), ("tokens", 4000)]` inside the
            list, all are needed. Turns and messages count what is unsummarized, the others the whole prompt.
        slice: The oldest part that becomes one summary; None for all but `keep`.
        keep: What stays whole at the end. The user's last message and what is still open stay in any case.
        compact_to: Once triggered, goes on until the prompt is no larger; None stops as soon as no trigger holds.
        max_tokens: The prompt's limit: beyond it even what `keep` names is summarized or shortened; None for no limit.
            A fraction counts only where the window is known.
        window_tokens: The model's window; None: the middleware reads it from the model's profile, nobody else does.
        max_summary_chars: Characters of one summary at most.
        max_pin_chars: Characters of pinned statements at most, shown beside the summaries; 0 for none. What must hold
            goes before who the user is, that before preferences and goals, newer before older.
        fanout: Summaries of one depth that are shown; with one more the oldest become one of the next depth. 1 keeps
            one running summary.
        max_depth: Depth at most; at this depth the oldest summaries are condensed again and again.
        tool_results: How old tool results are shortened.
        digest_gain: Shortens tool results before the next compaction once that saves so large a part of what is to be
            sent anew for it: the provider's prompt cache is lost from the first of them on. None waits for the next
            compaction.
        max_input_tokens: Input of one summarizer call at most; longer slices are summarized in parts, none is dropped.
        attempts: Summarizer calls for one summary at most before it counts as failed.
        max_failures: Failed summaries in a row until `on_error` is applied; till then the history stays whole.
        retry_after_messages: New messages after a failure before the next try; doubled with each one.
        on_error: `fallback` takes an extract made without a model, `keep` leaves the history, `raise` raises.
    """

    trigger: Any = (("turns", 20),)
    slice: Size | None = ("turns", 15)
    keep: Size = ("turns", 5)
    compact_to: Size | None = None
    max_tokens: Size | None = ("fraction", 0.9)
    window_tokens: int | None = None
    max_summary_chars: int = 200
    max_pin_chars: int = 1_000
    fanout: int = 5
    max_depth: int = 3
    tool_results: ToolResultPolicy = field(default_factory=lambda: ToolResultPolicy(digest="off"))
    digest_gain: float | None = 0.7
    max_input_tokens: int = 32_000
    attempts: int = 2
    max_failures: int = 3
    retry_after_messages: int = 4
    on_error: Literal["fallback", "keep", "raise"] = "fallback"

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "trigger", conditions(self.trigger))
        put(self, "keep", size(self.keep, "keep"))
        for name in ("slice", "compact_to", "max_tokens"):
            value = getattr(self, name)
            put(self, name, None if value is None else size(value, name))
        if self.slice is not None and self.slice[1] <= 0:
            raise Misuse("slice must be above 0, or None for all but keep")
        if self.max_tokens is not None and self.max_tokens[0] not in ("tokens", "fraction"):
            raise Misuse(f"max_tokens is a size in tokens or a fraction, not {self.max_tokens!r}")
        if self.window_tokens is not None:
            require_numbers(int, 1, window_tokens=self.window_tokens)
        if self.digest_gain is not None:
            require_numbers(float, 0, digest_gain=self.digest_gain)
        for name, least in (
            ("max_summary_chars", 1),
            ("max_pin_chars", 0),
            ("fanout", 1),
            ("max_depth", 1),
            ("max_input_tokens", 100),
            ("attempts", 1),
            ("max_failures", 1),
            ("retry_after_messages", 0),
        ):
            require_numbers(int, least, **{name: getattr(self, name)})
        if isinstance(self.tool_results, Mapping):
            put(self, "tool_results", ToolResultPolicy(**_known(self.tool_results, ToolResultPolicy)))
        of_type(self.tool_results, ToolResultPolicy, "tool_results")
        if self.on_error not in ("fallback", "keep", "raise"):
            raise Misuse(f"on_error must be 'fallback', 'keep' or 'raise', not {self.on_error!r}")

    @classmethod
    def recommended(cls, **changes: Any) -> ContextPolicy:
        """Return what long runs do best with, measured: digests of old tool results, summaries of 1,200 characters.

        It compacts at 18 turns and keeps 3: the same number of summaries for less in each prompt.
        """
        ours: dict[str, Any] = {
            "trigger": ("turns", 18),
            "keep": ("turns", 3),
            "max_summary_chars": 1_200,
            "tool_results": ToolResultPolicy(),
        }
        return cls(**{**ours, **changes})

    def to_json(self) -> str:
        """Return the policy as JSON text, for `from_json`."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ContextPolicy:
        """Return the policy of a JSON text; raise `Misuse` for settings that this release does not know."""
        try:
            settings = json.loads(text)
        except ValueError as error:
            raise Misuse(f"a context policy is read from the JSON that to_json() gives: {error}") from error
        return cls(**_known(settings, cls))


def _known(settings: Any, kind: type[ContextPolicy] | type[ToolResultPolicy]) -> Mapping[str, Any]:
    known = {each.name for each in fields(kind)}
    if not isinstance(settings, Mapping) or {*settings} - known:
        raise Misuse(
            f"{kind.__name__} has the settings {', '.join(sorted(known))}; remove the others from {settings!r}"
        )
    return settings


def of_type(value: Any, kind: type[Any], name: str) -> None:
    """Raise `Misuse` for an argument that is of another type."""
    if not isinstance(value, kind):
        raise Misuse(f"{name} must be a {kind.__name__}, not {value!r:.80}")
