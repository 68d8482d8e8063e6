"""The colours and the layout of what is shown, in light and in dark places."""

from __future__ import annotations

from typing import Final

from langgraph_statekit.timetravel.svg import STYLE as _SVG

_LIGHT: Final = (
    "--sk-bg:#ffffff;--sk-fg:#1f2328;--sk-muted:#57606a;--sk-line:#8c959f;--sk-edge:#d0d7de;--sk-soft:#f6f8fa;"
    "--sk-input:#0969da;--sk-loop:#1a7f37;--sk-update:#8250df;--sk-fork:#bc4c00;--sk-bad:#cf222e;color-scheme:light"
)
_DARK: Final = (
    "--sk-bg:#0d1117;--sk-fg:#e6edf3;--sk-muted:#9198a1;--sk-line:#6e7681;--sk-edge:#3d444d;--sk-soft:#151b23;"
    "--sk-input:#58a6ff;--sk-loop:#3fb950;--sk-update:#bc8cff;--sk-fork:#f0883e;--sk-bad:#ff7b72;color-scheme:dark"
)
_DARK_PLACES: Final = (
    *('[data-jp-theme-light="false"]', ".vscode-dark", "html.dark", ".dark-theme"),
    ".vscode-high-contrast:not(.vscode-high-contrast-light)",  # VS Code gives a light one both names
)
_LIGHT_PLACES: Final = (
    *('[data-jp-theme-light="true"]', ".vscode-light", ".vscode-high-contrast-light", "html.light", ".light-theme"),
)

_RULES: Final = (
    f".sk-tt{{{_LIGHT}}}@media(prefers-color-scheme:dark){{.sk-tt{{{_DARK}}}}}"
    + "".join(f"{place} .sk-tt{{{_LIGHT}}}" for place in _LIGHT_PLACES)
    + "".join(f"{place} .sk-tt{{{_DARK}}}" for place in _DARK_PLACES)
    + _SVG
    + ".sk-tt,.sk-tt *{box-sizing:border-box}"
    ".sk-tt{background:var(--sk-bg);color:var(--sk-fg);font:14px/1.45 system-ui,sans-serif;padding:12px 14px;"
    "border:1px solid var(--sk-edge);border-radius:8px;text-align:left;overflow-wrap:anywhere}"
    ".sk-tt h3{font-size:16px;margin:0}.sk-tt h4{font-size:14px;margin:0 0 4px}"
    ".sk-tt h5{font-size:13px;margin:10px 0 4px}.sk-tt h3,.sk-tt h4,.sk-tt h5{font-weight:700;line-height:1.35}"
    ".sk-tt p{margin:4px 0}.sk-tt a{color:inherit}.sk-sum{color:var(--sk-muted)}"
    ".sk-find{background:var(--sk-soft);border:1px solid var(--sk-edge);border-radius:6px;padding:8px 12px;"
    "margin:8px 0}"
    ".sk-tt ul{list-style:none;margin:0;padding:0}.sk-find li{position:relative;padding-left:22px;margin:2px 0}"
    ".sk-find a{text-decoration:none}.sk-find a:hover,.sk-find a:focus{text-decoration:underline}"
    ".sk-mark{position:absolute;left:0;top:2px;width:15px;height:15px;line-height:15px;border-radius:50%;"
    "text-align:center;font-weight:700;font-size:11px;color:var(--sk-bg);background:var(--sk-input)}"
    ".sk-find .sk-bad .sk-mark{background:var(--sk-bad)}.sk-find .sk-warn .sk-mark{background:var(--sk-fork)}"
    ".sk-pic{display:block!important;overflow-x:auto;margin:8px 0 2px}.sk-pic>div{position:relative;min-width:600px}"
    ".sk-pic svg{display:block}.sk-pic span{position:absolute;margin:-10px 0 0 -8px}"
    ".sk-hot{display:block;width:16px;height:20px;border-radius:50%}"
    ".sk-tt ul.sk-legend{display:flex;"
    "flex-wrap:wrap;gap:2px 14px;color:var(--sk-muted);font-size:12px;margin:4px 0 8px}"
    ".sk-c-input{color:var(--sk-input)}.sk-c-loop{color:var(--sk-loop)}.sk-c-update{color:var(--sk-update)}"
    ".sk-c-fork{color:var(--sk-fork)}.sk-c-bad,p.sk-bad{color:var(--sk-bad)}"
    ".sk-rows{border-top:1px solid var(--sk-edge)}.sk-row{border-bottom:1px solid var(--sk-edge)}"
    ".sk-row:target{background:var(--sk-soft)}"
    ".sk-row>summary{display:grid;"
    "grid-template-columns:1.2em 2.6em clamp(5em,15%,13em) minmax(0,1fr) 4.2em 4.2em;gap:0 8px;"
    "align-items:baseline;padding:4px 2px;cursor:pointer;list-style:none}"
    ".sk-row>summary::-webkit-details-marker{display:none}.sk-row>summary:hover{background:var(--sk-soft)}"
    ".sk-tt :focus-visible{outline:2px solid var(--sk-input);outline-offset:1px}"
    ".sk-step,.sk-num{font-variant-numeric:tabular-nums;text-align:right}.sk-num{color:var(--sk-muted);font-size:12px}"
    ".sk-sep{display:none}.sk-node{font-weight:600}.sk-what{color:var(--sk-fg)}"
    ".sk-badge{display:inline-block;border:1px solid var(--sk-line);border-radius:9px;padding:0 7px;font-size:11px;"
    "line-height:16px;color:var(--sk-muted);max-width:100%;margin-right:3px}"
    ".sk-head,.sk-b-input{border-color:var(--sk-input);color:var(--sk-input)}"
    ".sk-b-fork,.sk-lane{border-color:var(--sk-fork);color:var(--sk-fork)}"
    ".sk-b-bad{border-color:var(--sk-bad);color:var(--sk-bad)}"
    ".sk-body{padding:4px 10px 12px 2.4em;border-left:3px solid var(--sk-edge);margin:2px 0 6px 6px}"
    ".sk-tt dl{display:flex;flex-wrap:wrap;gap:2px 18px;margin:0;font-size:12px}.sk-tt dl div{display:flex;gap:6px}"
    ".sk-tt dt,.sk-tt dd{float:none;width:auto;margin:0;padding:0;font-weight:400}"
    ".sk-tt dt{color:var(--sk-muted);overflow-wrap:break-word;max-width:24em}"
    ".sk-trail{margin:0;padding-left:1.6em}.sk-d-call{font-weight:600}"
    ".sk-d-reason{color:var(--sk-muted);font-style:italic}"
    ".sk-wide{overflow-x:auto}.sk-tt table{border-collapse:collapse;font-size:12.5px;width:100%;table-layout:fixed;"
    "background:transparent;color:inherit;margin:0}"
    ".sk-tt th,.sk-tt td{border:1px solid var(--sk-edge);padding:3px 6px;vertical-align:top;text-align:left;"
    "white-space:pre-wrap;background:transparent;color:inherit;max-width:none}"
    ".sk-tt tbody tr:nth-child(n){background:transparent}"
    ".sk-tt th:first-child{width:2.2em}.sk-tt th:nth-child(2){width:28%}"
    ".sk-tt th{color:var(--sk-muted);font-weight:600}"
    ".sk-k-added td:first-child{color:var(--sk-loop)}.sk-k-removed td:first-child{color:var(--sk-bad)}"
    ".sk-tt pre{background:var(--sk-soft);color:inherit;border:1px solid var(--sk-edge);border-radius:6px;margin:4px 0;"
    "padding:6px 8px;font:12px/1.4 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;max-height:24em;"
    "overflow:auto}"
    ".sk-tt code{background:transparent;color:inherit;font:12.5px ui-monospace,monospace;white-space:pre-wrap}"
    ".sk-chan>summary{cursor:pointer;font-weight:600}.sk-chan small{font-weight:400;color:var(--sk-muted)}"
    ".sk-widget .sk-sides{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26em),1fr));gap:10px;"
    "margin:8px 0}.sk-widget .sk-side{min-width:0}.sk-widget .sk-side>.sk-tt{height:100%}"
    ".sk-move{display:flex;flex-wrap:wrap;gap:4px 14px;align-items:center}.sk-move .sk-slider{flex:1 1 16em}"
    ".sk-at{font-weight:600}.sk-move select{max-width:16em}"
    ".sk-widget textarea,.sk-widget input[type=text],.sk-widget select,.sk-widget button{font:inherit;color:inherit;"
    "background:var(--sk-bg);border:1px solid var(--sk-line);border-radius:4px;padding:3px 8px}"
    ".sk-widget textarea{display:block;width:100%;margin:6px 0}.sk-widget button{cursor:pointer;margin-left:8px}"
    "@media(max-width:560px){.sk-row>summary{grid-template-columns:1.2em 2.6em minmax(0,1fr) 5em}"
    ".sk-what{grid-column:1/-1}.sk-num:last-child{display:none}}"
)
STYLE: Final = _RULES.replace(".sk-tt ", ".sk-tt.sk-tt ")
"""Scoped to `.sk-tt`, twice, as notebooks have rules of their own for lists and tables inside of two classes."""

PAGE_STYLE: Final = (
    "body{margin:0;background:#f6f8fa}main{max-width:1600px;margin:0 auto;padding:12px}"
    "@media(prefers-color-scheme:dark){body{background:#010409}}"
)
