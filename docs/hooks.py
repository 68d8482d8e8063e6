"""Makes the pages that nobody writes: the reference, notebooks, sources, and the README as the first page."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

import langgraph_statekit
from langgraph_statekit.cli.program import _parsers
from langgraph_statekit.timetravel.html import page as document

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
NOTEBOOKS: Final = {f"notebooks/{each.name}": each for each in sorted((ROOT / "notebooks").glob("*.py"))}
AREAS: Final = {
    "Savers": ("checkpoint", "leases"),
    "Effects": ("effects",),
    "Watchdog and supervisor": ("watchdog",),
    "Sessions and memories": ("sessions",),
    "Context": ("context",),
    "Time travel": ("timetravel",),
    "States, graphs and ids": ("versions", "migrating", "compat", "thread_ids"),
    "Events": ("events", "opentelemetry_hook", "prometheus_hook"),
    "Errors": ("errors",),
}
"""Titles of reference pages, and the first parts of the modules whose public names are there."""
OUTPUTS: Final = "STATEKIT_DOCS_OUTPUTS"
"""The variable that, if it is set, has notebooks run, so that their pages show what they show; it takes a minute."""
ROW_PX, LEAST_ROWS, MOST_PX = 28, 12, 900
LINK: Final = re.compile(r"(?<=\]\()([^)#:\s]+)")
FOLDER: Final = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in what the navigation leaves open."""
    reference = [{title: _address(title)} for title in (*AREAS, "Command line")]
    notebooks = [{_title(each): uri.replace(".py", ".md")} for uri, each in NOTEBOOKS.items()]
    assert config.nav is not None
    for section in config.nav:
        if "Reference" in section:
            section["Reference"] = ["reference/index.md", *reference]
        if "Tutorial" in section:
            section["Tutorial"].append({"Notebooks": notebooks})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for source, uri in PAGES.items():
        front = "---\nhide: [navigation]\n---\n\n" if uri == "index.md" else ""
        files.append(File.generated(config, uri, content=front + (ROOT / source).read_text(encoding="utf-8")))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        shown = dict(zip(NOTEBOOKS, pool.map(_outputs, NOTEBOOKS.values()), strict=True))
    for uri, script in NOTEBOOKS.items():
        content, pages = "", dict[str, str]()
        for number, (kind, text) in enumerate(_cells(script)):
            content += text
            for output in shown[uri].get(number, ()) if kind == "code" else ():
                content += _output(output, f"{script.stem}.{len(pages)}.html", pages)
        files.append(File.generated(config, uri.replace(".py", ".md"), content=content))
        for name, drawn in pages.items():
            files.append(File.generated(config, f"notebooks/{name}", content=drawn))
    files.append(File.generated(config, "reference/index.md", content="\n".join(_index())))
    files.append(File.generated(config, _address("Command line"), content="\n".join(_commands())))
    for title in AREAS:
        files.append(File.generated(config, _address(title), content="\n".join(_reference(title))))
    for source in {found for file in files.documentation_pages() for found in _sources(file)}:
        name, hidden = f"source/{source}", InclusionLevel.NOT_IN_NAV
        if source.endswith(".py"):
            text = f"# {source}\n\n```python\n{(ROOT / source).read_text(encoding='utf-8')}```\n"
            files.append(File.generated(config, f"{name}.md", content=text, inclusion=hidden))
        else:
            files.append(File.generated(config, name, abs_src_path=str(ROOT / source), inclusion=hidden))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have links that lead to files of the repository lead to their pages; a folder has none."""
    here = page.file.src_uri

    def target(link: re.Match[str]) -> str:
        there = _page_of(_in_repository(here, link[1]))
        return link[1] if there is None else posixpath.relpath(there, posixpath.dirname(here))

    def folder(link: re.Match[str]) -> str:
        path = _in_repository(here, link[2])
        return link[1] if _page_of(path) is None and (ROOT / path).is_dir() else link[0]

    return LINK.sub(target, FOLDER.sub(folder, markdown))


def _in_repository(page: str, link: str) -> str:
    """Return where in the repository a link of a page leads to."""
    origin = {uri: source for source, uri in PAGES.items()}.get(page, f"docs/{page}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def _page_of(path: str) -> str | None:
    """Return the page of a file or folder of the repository; None if it has none."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "notebooks":
        return next(iter(NOTEBOOKS)).replace(".py", ".md")
    if path.startswith("notebooks/"):
        return f"{path.rpartition('.')[0]}.md"
    if not (ROOT / path).is_file():
        return None
    return f"source/{path}.md" if path.endswith(".py") else f"source/{path}"


def _sources(file: File) -> Iterator[str]:
    for link in LINK.findall(file.content_string):
        path = _in_repository(file.src_uri, link)
        if (_page_of(path) or "").startswith("source/"):
            yield path


def _address(title: str) -> str:
    return f"reference/{title.lower().replace(',', '').replace(' ', '_')}.md"


def _names(title: str) -> list[str]:
    homes: dict[str, str] = langgraph_statekit._HOMES
    return [each for each in homes if homes[each].partition(".")[0] in AREAS[title]]


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]


def _index() -> Iterator[str]:
    yield "# Reference\n\nEvery public name of the package, made from its docstrings. All can be imported from"
    yield "`langgraph_statekit`; what an event is made of from `langgraph_statekit.events`.\n"
    for title in AREAS:
        page = posixpath.basename(_address(title))
        yield f"\n## [{title}]({page})\n\n| name | |\n|---|---|"
        for name in _names(title):
            yield f"| [`{name}`][langgraph_statekit.{name}] | {_first_line(getattr(langgraph_statekit, name))} |"


def _reference(title: str) -> Iterator[str]:
    yield f"# {title}\n"
    for name in _names(title):
        yield f"::: langgraph_statekit.{name}\n"
    if title == "Events":
        module = import_module("langgraph_statekit.events")
        yield f"## What hooks are told\n\n{_first_line(module)}\n"
        for name, thing in vars(module).items():
            if isinstance(thing, type) and thing.__module__ == module.__name__ and name not in _names(title):
                yield f"::: {module.__name__}.{name}\n"


def _commands() -> Iterator[str]:
    parser, commands = _parsers()
    yield f"# Command line\n\n```text\n{parser.format_help()}```\n"
    for name, command in commands.items():
        shown = command.format_help().partition("\nThe store is named by")[0]
        yield f"## statekit {name}\n\n```text\n{shown.rstrip()}\n```\n"


def _title(notebook: Path) -> str:
    return next(line for line in notebook.read_text(encoding="utf-8").splitlines() if line.startswith("# # "))[4:]


def _cells(notebook: Path) -> Iterator[tuple[str, str]]:
    """Yield the kinds of the cells of a notebook's script, and the cells as Markdown."""
    _, *cells = re.split(r"^# %%(.*)\n", notebook.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for kind, text in zip(cells[::2], cells[1::2], strict=True):
        if "markdown" in kind:
            yield "markdown", re.sub(r"^# ?", "", text, flags=re.MULTILINE) + "\n"
        else:
            yield "code", f"```python\n{text.strip()}\n```\n\n"


def _outputs(notebook: Path) -> dict[int, list[Any]]:
    """Return what the cells of a notebook show when they run, by the number of the cell; nothing unless asked for."""
    if not os.environ.get(OUTPUTS):
        return {}
    import nbformat
    from nbclient import NotebookClient

    read = nbformat.read(notebook.with_suffix(".ipynb"), as_version=4)
    with TemporaryDirectory() as folder:
        client = NotebookClient(read, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}})
        client.execute(stderr=DEVNULL)  # what the kernel itself says; what cells say is among their outputs
    return {number: cell.outputs for number, cell in enumerate(read.cells) if cell.cell_type == "code"}


def _output(output: Any, name: str, pages: dict[str, str]) -> str:
    """Return an output as Markdown. What is drawn becomes a page of its own: the site's styles would change it."""
    data = output.get("data", {})
    drawn = data.get("text/html") or data.get("image/svg+xml")
    if drawn:
        pages[name] = document("Output", drawn)
        height = min(MOST_PX, 60 + ROW_PX * (drawn.count("<details class='sk-row'") or LEAST_ROWS))
        frame = f"<iframe class='output' src='{name}' title='Output' loading='lazy' style='height:{height}px'></iframe>"
        return f"{frame}\n\n[Output alone]({name})\n\n"
    text = output.get("text") if output.get("name") != "stderr" else ""
    shown = (text or data.get("text/plain") or "").rstrip()
    return f'```text title="Output"\n{shown}\n```\n\n' if shown else ""
