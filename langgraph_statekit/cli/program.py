"""Arguments, errors and exit codes of `statekit`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NoReturn

from langgraph_statekit.cli.change import fork, label, prune, rotate
from langgraph_statekit.cli.doctor import doctor
from langgraph_statekit.cli.effects import effects
from langgraph_statekit.cli.look import diff, ls, show
from langgraph_statekit.cli.migrate import migrate
from langgraph_statekit.cli.move import PACKAGES, copy
from langgraph_statekit.cli.sessions import sessions
from langgraph_statekit.cli.terminal import without_login
from langgraph_statekit.cli.tiers import archive, deleted, replicate, restore, verify
from langgraph_statekit.effects.rules import STATES
from langgraph_statekit.errors import CheckpointMissing, DataError, Misuse, SessionEnded, SessionMissing, StatekitError
from langgraph_statekit.readable import printable
from langgraph_statekit.sessions.records import STATUSES
from langgraph_statekit.status import NAMES

FOUND: Final = 1
MISUSE: Final = 2
UNAVAILABLE: Final = 3
_INTERRUPTED: Final = 130
_NO_READER: Final = 141
_DAY_S: Final = 86400
_NAMES: Final = "a step (-1 is the latest), label, id or its beginning"
_BREAK: Final = re.compile(r"\s*\n\s*")
"""Drivers tell things in several lines."""

_EPILOG: Final = """\
The store is named by --url or by the variable STATEKIT_URL, which keeps a password out of the list of processes:
sqlite:///agent.db, redis://host:6379/0?prefix=shop, postgresql://host/db?schema=agents, s3://bucket/prefix, file:///dir

Encrypted threads need their keys in the variable STATEKIT_KEYS: NAME=KEY,NAME=KEY in base64, the active one first.

exit codes:
  0    done, and nothing is wrong
  1    something was found: doctor found a fault, diff a difference, migrate a state that it cannot migrate, watch
       --once a thread that needs a look, or stored bytes cannot be read
  2    the arguments cannot be used, or what they name is not there
  3    the store did not answer or kept changing, or threads are in use: try again
  130  Ctrl-C
  141  nobody reads the output any more

With --json, stdout is one JSON document, or with watch one on each line, as things happen. Errors and progress go to
stderr. Values are read without importing or unpickling anything of yours, but for migrate and watch, which import what
--state and --graph name; what stands under the name of a secret (password, api_key, ...) is shown as ***.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(without_login(message))


def _parse(args: Sequence[str]) -> argparse.Namespace:
    parser, commands = _parsers()
    own = commands.get(args[0]) if args else None
    if args and args[0].partition("=")[0] in ("--url", "--json"):
        parser.error("options come after the command: statekit COMMAND --url URL")
    if own is None:
        return parser.parse_args(args)
    # Options may stand between arguments, but not where `--` says that what follows is none.
    return own.parse_args(args[1:]) if "--" in args else own.parse_intermixed_args(args[1:])


def _parsers() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        "statekit", description="Looks after stored LangGraph threads.", epilog=_EPILOG, formatter_class=raw
    )
    parser.add_argument("--version", action="version", version=f"statekit {_release()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    def command(
        name: str, run: Callable[[argparse.Namespace], int], told: str, *, store: bool = True
    ) -> argparse.ArgumentParser:
        own = commands.add_parser(name, help=told, description=told, epilog=_EPILOG, formatter_class=raw)
        if store:
            own.add_argument("--url", default=os.environ.get("STATEKIT_URL"), help="the store (default: $STATEKIT_URL)")
        own.add_argument("--json", action="store_true", help="write one JSON document")
        own.set_defaults(run=run)
        return own

    one = command("ls", ls, "list threads, those that changed last first")
    one.add_argument("threads", nargs="*", metavar="THREAD", help="only these")
    one.add_argument("--status", choices=NAMES, help="only threads of this status")
    one.add_argument("-n", "--limit", type=_count, help="at most so many")

    one = command("show", show, "show a thread and its latest checkpoint, or another one")
    one.add_argument("thread", metavar="THREAD")
    _at(one, "show this checkpoint")
    one.add_argument("--ns", help="namespace of a subgraph (default: the root; with --history all)")
    one.add_argument("--full", action="store_true", help="show values whole, however large")
    one.add_argument("--history", action="store_true", help="list the checkpoints instead, newest first")
    one.add_argument("--html", metavar="FILE", help="write the timeline of its newest checkpoints as a page of its own")
    one.add_argument("-n", "--limit", type=_count, help="with --history or --html, at most so many")

    one = command("diff", diff, "compare the channel values of two checkpoints; exits with 1 if they differ")
    one.add_argument("thread", metavar="THREAD")
    one.add_argument("before", nargs="?", metavar="BEFORE", help=f"{_NAMES} (default: what AFTER goes on from)")
    one.add_argument("after", nargs="?", metavar="AFTER", help="the same (default: the latest)")
    _at(one, "compare this checkpoint with what it goes on from")
    one.add_argument("--other", metavar="THREAD", help="AFTER is of this thread; BEFORE is the latest by default")
    one.add_argument("--ns", help="namespace of a subgraph (default: the root)")
    one.add_argument("--full", action="store_true", help="show values whole, however large")
    one.add_argument("--all", action="store_true", help="compare also channels that tell LangGraph what to run")
    one.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="write in colours")

    one = command("fork", fork, "copy a thread's history to a new thread of the same store")
    one.add_argument("thread", metavar="THREAD")
    one.add_argument("new", metavar="NEW", help="id of the new thread; it must have no checkpoints")
    _at(one, "let the new thread go on from this checkpoint")

    one = command(
        "copy", copy, "copy threads between stores and compare both sides; call it again to go on", store=False
    )
    one.add_argument("source", metavar="FROM_URL")
    one.add_argument("target", metavar="TO_URL")
    one.add_argument("threads", nargs="*", metavar="THREAD", help="only these (default: all)")
    told = "this package of LangGraph's wrote the {}: " + ", ".join(PACKAGES)
    one.add_argument("--from", dest="from_package", choices=PACKAGES, metavar="PACKAGE", help=told.format("source"))
    one.add_argument("--to", dest="to_package", choices=PACKAGES, metavar="PACKAGE", help=told.format("target"))
    one.add_argument("--replace", action="store_true", help="delete a thread of the target that differs, copy it anew")
    one.add_argument(
        "--without-metadata", action="append", default=[], metavar="KEY", help="leave this key out; may be repeated"
    )

    one = command("prune", prune, "remove old checkpoints; labelled ones and what others need stay")
    one.add_argument("threads", nargs="*", metavar="THREAD")
    one.add_argument("--all", action="store_true", help="prune all threads of the store")
    one.add_argument("--dry-run", action="store_true", help="say what would go, and change nothing")
    one.add_argument("--keep-latest", action="store_true", help="keep the latest checkpoint of each namespace only")
    one.add_argument("--keep-last", type=_count, metavar="N", help="keep the newest N of each namespace")
    one.add_argument("--keep-every", type=_count, metavar="N", help="keep those whose step is a multiple of N")
    ages = one.add_mutually_exclusive_group()
    ages.add_argument("--max-age-s", type=float, metavar="S", help="remove those that are older")
    ages.add_argument("--max-age-days", dest="max_age_s", type=_days, metavar="D", help="the same in days")
    one.add_argument(
        "--expired",
        action="store_true",
        help="remove what expired, and writes whose checkpoint did not come for a day; end sessions that nobody uses",
    )
    one.add_argument("--drop-labels", action="store_true", help="labels do not keep a checkpoint")

    one = command("label", label, "give a checkpoint a label, which keeps it from prune; given again, it moves")
    one.add_argument("thread", metavar="THREAD")
    one.add_argument("label", metavar="LABEL")
    _at(one, "label this checkpoint")
    one.add_argument("--ns", help="namespace of a subgraph (default: the root)")
    one.add_argument("--remove", action="store_true", help="take the label away")

    command("rotate", rotate, "wrap the keys of all encrypted threads with the first one of STATEKIT_KEYS")

    one = command("migrate", migrate, "bring stored states to the newest version, each thread under its lease")
    one.add_argument("threads", nargs="*", metavar="THREAD")
    one.add_argument("--all", action="store_true", help="migrate all threads of the store")
    one.add_argument(
        "--state",
        required=True,
        metavar="MODULE:NAME",
        help="the state class with @state_version, or a graph of it with its subgraphs; its module is imported",
    )
    steps = one.add_mutually_exclusive_group()
    for step, told in (
        ("revert", "bring back exactly what was there before, of threads that did not go on since"),
        ("commit", "remove what was there before; there is no way back then"),
    ):
        steps.add_argument(f"--{step}", dest="step", action="store_const", const=step, help=told)
    one.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")
    one.add_argument("--wait-s", type=float, default=0.0, metavar="S", help="wait so long for a thread that is leased")

    for name, run, told in (
        ("archive", archive, "have the hot store drop threads that the cold one has; exits with 1 if one is in use"),
        ("restore", restore, "bring threads from the cold store to the hot one, which may be empty"),
        ("verify", verify, "read all that the cold store and its replicas have; exits with 1 if something is wrong"),
    ):
        one = command(name, run, f"{told}; the URL has ?cold=URL in it")
        one.add_argument("threads", nargs="*", metavar="THREAD")
        one.add_argument("--all", action="store_true", help="all threads of the store")
        if name == "verify":
            one.add_argument("--repair", action="store_true", help="make heads anew that are missing or damaged")
        if name == "restore":
            told = "as it was at this time (2025-12-24T18:00+01:00; in UTC without offset), or at this checkpoint"
            one.add_argument("--at", metavar="TIME|CHECKPOINT", help=f"make a copy of each thread {told}")
            one.add_argument("--suffix", default="", metavar="TEXT", help="add this to the ids of copies")
            one.add_argument(
                "--to", metavar="URL", help="make copies in this store instead, which has a cold store too"
            )
            one.add_argument("--prefix", metavar="TEXT", help="with --all, only threads whose ids begin so")

    told = "bring over what the replicas lack, object by object; the URL has ?cold=URL&replicas=URL,URL in it"
    command("replicate", replicate, told)

    one = command("effects", effects, "list effects on the world outside, or tell what became of one nobody knows of")
    one.add_argument("action", choices=("ls", "resolve"), metavar="ls|resolve")
    one.add_argument("words", nargs="*", metavar="WORD", help="ls: THREAD ...; resolve: THREAD KEY sent|not_sent")
    one.add_argument("--state", choices=STATES, help="ls: only effects of this state")
    one.add_argument("-n", "--limit", type=_count, help="ls: at most so many, those that changed last")
    one.add_argument("--global", dest="is_global", action="store_true", help="resolve: KEY is one in the whole store")
    one.add_argument("--note", metavar="TEXT", help="resolve: who found out, and how")

    one = command("sessions", sessions, "list the sessions of users; export, import, close or erase some")
    one.add_argument("action", choices=("ls", "close", "export", "import", "erase"), metavar="ACTION")
    told = "close: SESSION; export: SESSION FILE, or FILE with --user; import: FILE"
    one.add_argument("words", nargs="*", metavar="WORD", help=told)
    one.add_argument("--user", metavar="USER", help="only sessions of this user")
    one.add_argument("--agent", metavar="AGENT", help="ls: only sessions of this agent")
    one.add_argument("--status", choices=STATUSES, help="ls: only sessions of this status")
    one.add_argument("-n", "--limit", type=_count, help="ls: at most so many (default: 1,000)")
    one.add_argument("--as-new", action="store_true", help="import: give each session a new id")
    one = command("watch", _watch, "go on with threads whose worker died or hangs, until a signal comes")
    one.add_argument(
        "--graph",
        action="append",
        default=[],
        metavar="NAME=MODULE:FUNCTION",
        help="what makes the graph that leases call so: a function of a saver, or a StateGraph; imported; repeatable",
    )
    one.add_argument("--once", action="store_true", help="only what there is to do now")
    one.add_argument("--list", action="store_true", help="only show leases, and threads without one")
    for name, default, told in (
        ("--every-s", 5.0, "seconds between two looks"),
        ("--stuck-s", 600.0, "seconds without progress after which a leased thread is stuck"),
        ("--drain-s", 30.0, "seconds that its holder then gets to stop by itself"),
        ("--quarantine-s", 5.0, "seconds between taking a thread and its first step"),
    ):
        one.add_argument(name, type=float, default=default, metavar="S", help=f"{told} (default: {default:g})")
    one.add_argument("--max-attempts", type=_count, default=3, metavar="N", help="of an item and reason (default: 3)")
    one.add_argument("--workers", type=_count, default=4, metavar="N", help="threads that run at once (default: 4)")

    one = command("doctor", doctor, "check the store, what it promises and what is stored; exits with 1 if it is ill")
    one.add_argument("threads", nargs="*", metavar="THREAD", help="read all of these (default: up to 20, by chance)")
    one.add_argument("--all", action="store_true", help="read all of all threads")
    one.add_argument("--no-write", action="store_true", help="do not try a save in a thread of its own")
    one.add_argument("--deleted", metavar="THREAD", help="only say whether nothing is left of it in a tiered store")
    return parser, commands.choices


def _watch(given: argparse.Namespace) -> int:
    from langgraph_statekit.cli.watch import watch  # brings a large part of LangGraph, which no other command needs

    return watch(given)


def _at(parser: argparse.ArgumentParser, told: str) -> None:
    parser.add_argument("--at", metavar="CHECKPOINT", help=f"{told}: {_NAMES} (default: the latest)")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def _days(text: str) -> float:
    try:
        return float(text) * _DAY_S
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def _release() -> str:
    try:
        return version("langgraph-statekit")
    except PackageNotFoundError:  # run from its sources
        return "of an unknown release"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        argv: Its arguments; None for those of the process.
    """
    with suppress(AttributeError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        given = _parse(sys.argv[1:] if argv is None else argv)
        run: Callable[[argparse.Namespace], int] = deleted if getattr(given, "deleted", None) else given.run
        code = run(given)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return _NO_READER
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else MISUSE
    except StatekitError as error:
        print(f"statekit: {printable(without_login(_BREAK.sub(' ', str(error))))}", file=sys.stderr)
        return _code(error)
    return code


def _code(error: StatekitError) -> int:
    if isinstance(error, Misuse | CheckpointMissing | SessionMissing | SessionEnded):
        return MISUSE
    return FOUND if isinstance(error, DataError) else UNAVAILABLE


def _forget_output() -> None:
    # The interpreter flushes stdout at its end and would complain.
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
