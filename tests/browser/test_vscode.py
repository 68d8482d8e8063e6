"""In VS Code's frame for notebook outputs the timeline follows its theme, and VS Code's own styles change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from langgraph_statekit import StatekitSaver
from tests.browser.conftest import ALIGNED
from tests.browser.measures import BOXES, CONTRAST, LEAST_CONTRAST, OPEN_ALL
from tests.browser.test_export import incident
from tests.timetravel.conftest import real_sqlite  # noqa: F401  (a fixture)

# As release 1.139 has them, read in its frame: the variables of a theme stand on the root, and the renderer for
# text/html puts an output into the page by innerHTML.
FRAME = """<!doctype html><html lang="en"><head><style>
@layer vscode-default {
  body { background-color: transparent; color: var(--vscode-editor-foreground); font-family: system-ui;
    font-size: 13px; margin: 0; padding: 0 20px; overscroll-behavior-x: none; }
  a, a code { color: var(--vscode-textLink-foreground); }
  p > a { text-decoration: none; }
  a:hover { color: var(--vscode-textLink-activeForeground); }
  a:focus, input:focus { outline: 1px solid -webkit-focus-ring-color; outline-offset: -1px; }
  code { font-family: monospace; color: var(--vscode-textPreformat-foreground);
    background-color: var(--vscode-textPreformat-background); padding: 1px 3px; border-radius: 4px; }
}
#container .output_container { width: 100%; }
#container > div > div > div.output { font-size: 13px; padding: 8px 8px 8px 8px; box-sizing: border-box; border-top: none; }
#container div.output > div { box-sizing: border-box; border: 1px solid transparent; }
</style></head><body><div id="container" class="widgetarea"><div class="cell_container"><div class="output_container">
<div class="output remove-padding"><div></div></div></div></div></div></body></html>"""
VARIABLES = ("editor-foreground", "textLink-foreground", "textPreformat-foreground", "textPreformat-background")
LIGHT, DARK = ("#3b3b3b", "#005fb8", "#3b3b3b", "#0000001f"), ("#cccccc", "#4daafc", "#d0d0d0", "#3c3c3c")
THEMES = {
    # Classes of the body, colours, and whether it is dark.
    "light": ("vscode-light", LIGHT, False),
    "dark": ("vscode-dark", DARK, True),
    "contrast": ("vscode-high-contrast", DARK, True),
    "contrast-light": ("vscode-high-contrast-light vscode-high-contrast", LIGHT, False),
}


@pytest.mark.parametrize("system", ["light", "dark"])
@pytest.mark.parametrize("theme", THEMES)
def test_the_timeline_follows_the_theme_of_vscode_and_not_that_of_the_system(
    theme: str,
    system: str,
    browser: Any,
    real_sqlite: StatekitSaver,  # noqa: F811
    shot: Callable[[Any, str], None],
) -> None:
    names, colours, is_dark = THEMES[theme]
    variables = ";".join(f"--vscode-{name}:{value}" for name, value in zip(VARIABLES, colours, strict=True))
    shown = incident(real_sqlite)._repr_html_()
    page = browser.new_page(viewport={"width": 800, "height": 1000}, color_scheme=system)
    page.set_content(FRAME)
    page.evaluate(f"""() => {{
      document.documentElement.style.cssText = {json.dumps(variables)};
      document.body.className = {json.dumps(names)};
      document.body.dataset.vscodeThemeKind = {json.dumps(names.split()[0])};
      document.querySelector(".output > div").innerHTML = {json.dumps(shown)};
    }}""")
    page.evaluate(OPEN_ALL)
    ground, words = page.locator(".sk-tt").evaluate(
        "(e) => [getComputedStyle(e).backgroundColor, getComputedStyle(e).color]"
    )
    assert (ground, words) == (
        ("rgb(13, 17, 23)", "rgb(230, 237, 243)") if is_dark else ("rgb(255, 255, 255)", "rgb(31, 35, 40)")
    )
    assert page.locator(".sk-tt").evaluate(ALIGNED) == ["left", "0px", "none", "400", words]
    assert page.evaluate(BOXES) == []
    assert page.evaluate(CONTRAST) >= LEAST_CONTRAST
    shot(page, f"vscode-{theme}-{system}")
    page.close()
