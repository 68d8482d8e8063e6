"""A module imports only what stands to its left in the design's order, and no file is long."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "langgraph_statekit"
MOST_LINES = 400
LAYERS = [
    {"errors", "dice", "checkpoint.records", "checkpoint.fork"},
    {"checkpoint.cells"},
    {
        "extras",
        "processes",
        "thread_ids",
        "readable",
        "rehearsal",
        "checkpoint.options",
        "checkpoint.presence",
        "checkpoint.secret_keys",
        "checkpoint.claims",
        "checkpoint.expiry",
        "checkpoint.tenants",
    },
    {
        "checkpoint.backlog",
        "checkpoint.cache",
        "checkpoint.lines",
        "checkpoint.order",
        "checkpoint.repeating",
        "checkpoint.seats",
        "checkpoint.splice",
        "checkpoint.exact",
        "checkpoint.message_kinds",
        "checkpoint.foreign",
        "checkpoint.facts",
    },
    {"checkpoint.frames", "checkpoint.messages", "checkpoint.places", "checkpoint.pacing", "checkpoint.sampling_rules"},
    {"checkpoint.labels", "checkpoint.sampling", "checkpoint.sealing", "versions"},
    {"checkpoint.migrations"},
    {"checkpoint.codec", "checkpoint.retention_policy"},
    {"checkpoint.plain"},
    {"checkpoint.audit"},
    {"checkpoint.delta_history", "checkpoint.retention", "checkpoint.rewriting"},
    {"checkpoint.results"},
    {"checkpoint.serde"},
    {"events", "checkpoint.run", "checkpoint.backend"},
    {
        "context.policy",
        "context.tokens",
        "context.numbers",
        "context.words",
        "context.languages",
        "context.canned",
    },
    {"context.chain", "context.copies", "context.plain_text", "context.window"},
    {"context.digest", "context.placeholders", "context.repair", "context.verbatim", "context.fitting", "context.lint"},
    {"context.pins"},
    {"context.extract", "context.summaries", "context.plan", "context.shown"},
    {"context.asking", "context.compress", "context.knowledge"},
    {"context.draft"},
    {"context.core"},
    {"context.resources"},
    {"context.faces", "context.report"},
    {"context.summarize", "context.recall"},
    {"context.builder"},
    {"context.middleware"},
    {"checkpoint.changing", "checkpoint.sweeping"},
    {"checkpoint.requests"},
    {"opentelemetry_hook", "prometheus_hook", "checkpoint.engine"},
    {"checkpoint.encrypted_cells"},
    {"checkpoint.observed", "checkpoint.encrypted"},
    {"leases"},
    {"acquiring"},
    {"checkpoint.lifecycle"},
    {"checkpoint.saver"},
    {"checkpoint.progress_bar", "checkpoint.sides", "checkpoint.comparing"},
    {"checkpoint.forking", "checkpoint.sampling_flush"},
    {"checkpoint.sampled"},
    {"checkpoint.copying"},
    {"effects.rules"},
    {"effects.attempts", "effects.forgetting"},
    {"effects.engine"},
    {"effects.ledger"},
    {"topology", "migrating", "status"},
    {"renaming"},
    {"compat"},
    {"watchdog.view", "watchdog.questions", "watchdog.parts"},
    {"watchdog.told"},
    {"watchdog.policy", "watchdog.checks"},
    {"watchdog.rollback", "watchdog.attempts", "watchdog.leased", "watchdog.standing"},
    {"watchdog.recovery"},
    {"watchdog.errors", "watchdog.seen", "watchdog.beat", "watchdog.watcher"},
    {"watchdog.spending", "watchdog.concerns"},
    {"watchdog.runs", "watchdog.wire"},
    {"watchdog.tasks", "watchdog.process"},
    {"watchdog.child", "watchdog.supervise"},
    {"watchdog.watchdog", "watchdog.node"},
    {"watchdog.takeover"},
    {"watchdog.supervisor"},
    {"checkpoint.urls"},
    {"checkpoint.backends"},
    {"checkpoint.opening"},
    {
        "timetravel.looking",
        "timetravel.decisions",
        "timetravel.diff",
        "timetravel.glance",
        "timetravel.overlay",
        "timetravel.purity",
    },
    {"timetravel.moments"},
    {"timetravel.findings", "timetravel.history", "timetravel.lanes"},
    {"timetravel.shown"},
    {"timetravel.text"},
    {"timetravel.svg"},
    {"timetravel.style"},
    {"timetravel.html"},
    {"timetravel.view"},
    {"timetravel.results"},
    {"timetravel.reading"},
    {"timetravel.running"},
    {"timetravel.travel"},
    {"timetravel.widget"},
    {"sessions.words"},
    {"sessions.records", "sessions.requests", "sessions.archive"},
    {"sessions.search", "sessions.facts", "sessions.feed", "sessions.settings"},
    {"sessions.core"},
    {"sessions.expiry", "sessions.turns", "sessions.memories"},
    {"sessions.desks"},
    {"sessions.memory_nodes", "sessions.moving", "sessions.importing"},
    {"sessions.upkeep"},
    {"sessions.manager"},
    {"cli.serializer", "cli.terminal"},
    {"cli.stores"},
    {"cli.look", "cli.change", "cli.move", "cli.migrate", "cli.doctor", "cli.effects", "cli.sessions"},
    {"cli.tiers", "cli.watch"},
    {"cli.program"},
    {"__main__"},
]
CLIENTS = {
    "redis": "backends/redis",
    "psycopg": "backends/postgres",
    "psycopg_pool": "backends/postgres",
    "obstore": "backends/objects",
    "cryptography": "checkpoint/sealing",
    "opentelemetry": "opentelemetry_hook",
    "prometheus_client": "prometheus_hook",
    "langchain": "context/middleware",
}


def layer(module: str) -> int:
    return next(n for n, names in enumerate(LAYERS) for name in names if f"{module}.".startswith(f"{name}."))


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {
        f"{n.module}.{a.name}" if f"{n.module}" == "langgraph_statekit.checkpoint" else f"{n.module}"
        for n in ast.walk(tree)
        if isinstance(n, ast.ImportFrom)
        for a in n.names
    }
    return names | {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}


def modules() -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" or path.parent.name == "objects"]


def test_modules_import_only_from_their_left() -> None:
    for path in modules():
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for used in imports(path):
            if used.startswith("langgraph_statekit."):
                assert layer(used.removeprefix("langgraph_statekit.")) <= layer(name), f"{name} imports {used}"


def test_a_client_library_is_imported_by_its_one_store() -> None:
    for path in modules():
        for used in imports(path):
            home = CLIENTS.get(used.split(".")[0])
            assert home is None or home in path.as_posix(), f"{path} imports {used}"


def test_only_three_modules_know_about_event_loops() -> None:
    found = {path.relative_to(PACKAGE).as_posix() for path in modules() if "asyncio" in imports(path)}
    assert found == {"checkpoint/backlog.py", "checkpoint/run.py", "watchdog/tasks.py"}


def test_no_file_is_long() -> None:
    for folder in ("langgraph_statekit", "tests", "examples", "benchmarks"):
        files = list((ROOT / folder).rglob("*.py"))
        assert files, folder
        for path in files:
            assert len(path.read_text().splitlines()) <= MOST_LINES, path


def test_importing_the_package_loads_no_client_library() -> None:
    code = "import sys, langgraph_statekit as s; s.open_saver; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not [client for client in CLIENTS if f"'{client}'" in loaded]
    code = "import sys, langgraph_statekit; print(len([m for m in sys.modules if m.startswith('langgraph_statekit.')]))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "0\n"
