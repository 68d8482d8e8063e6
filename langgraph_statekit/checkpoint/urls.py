"""A saver's own options in the query of a URL."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qsl, quote, urlencode

from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Misuse

F = TypeVar("F", bound=Callable[..., StatekitSaver])
_READERS: Final = {"int": int, "float": float, "str": str}


def query_options(from_url: F) -> F:
    """Let a `from_url` take its keyword options from the query of the URL too; arguments win."""

    @wraps(from_url)
    def opened(saver: type[StatekitSaver], url: str, **options: Any) -> StatekitSaver:
        bare, merged = own_options(saver, url, options)
        return from_url(saver, bare, **merged)

    return cast(F, opened)


def own_options(saver: type[StatekitSaver], url: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the URL with what the driver needs, and the options of the saver from its query and from `options`.

    Args:
        saver: Its constructor's and its `from_url`'s keyword options are the ones that are known.
        url: As the user gave it.
        options: What the user gave beside it; these win.

    Raises:
        Misuse: One of `options` is unknown, or a text in the query is no number where one is needed.
    """
    known = _known(saver)
    if unknown := [key for key in options if key not in known]:
        raise Misuse(
            f"{saver.__name__} has no option {', '.join(map(repr, unknown))}; it takes {', '.join(sorted(known))}"
        )
    bare, _, query = url.partition("?")
    read: dict[str, Any] = {}
    kept: list[tuple[str, str]] = []
    for key, text in parse_qsl(query, keep_blank_values=True):
        if known.get(key) in _READERS:
            read[key] = _read(key, text, known[key])
        else:
            kept.append((key, text))
    return f"{bare}?{urlencode(kept, quote_via=quote)}" if kept else bare, {**read, **options}


def refuse_query(saver: type[StatekitSaver], url: str) -> None:
    """Raise `Misuse` when a URL still has settings, for a store whose driver takes none."""
    if query := url.partition("?")[2]:
        names = ", ".join(repr(key) for key, _ in parse_qsl(query, keep_blank_values=True))
        raise Misuse(f"{saver.__name__} has no option {names}; it takes {', '.join(sorted(_known(saver)))}")


def _known(saver: type[StatekitSaver]) -> dict[str, str]:
    """The keyword options of a saver, and the name of the type of each."""
    return {
        name: str(option.annotation).removesuffix(" | None")
        for source in (StatekitSaver.__init__, saver.__init__, saver.from_url)  # type: ignore[attr-defined]
        for name, option in inspect.signature(source).parameters.items()
        if option.kind is option.KEYWORD_ONLY
    }


def _read(key: str, text: str, kind: str) -> Any:
    try:
        return _READERS[kind](text)
    except ValueError as error:
        raise Misuse(f"the option {key}={text!r} in the URL is no {kind}") from error
