"""What a browser measures of a page that shows time travel; run from outside, as scripts of the page may be off."""

from __future__ import annotations

BOXES = """() => {
  const box = (e) => e.getBoundingClientRect();
  const seen = (e) => box(e).width > 0 && box(e).height > 0;
  const over = (a, b, by = 1) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - by && b.top < a.bottom - by;
  const out = [];
  for (const e of document.querySelectorAll(".sk-tt *")) {
    if (!seen(e) || e.closest("svg")) continue;
    const scrolls = e.closest(".sk-pic, .sk-wide");
    if (!scrolls && (box(e).right > innerWidth + 1 || box(e).left < -1)) out.push(`outside: ${e.className || e.tagName}`);
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "hidden") out.push(`cut: ${e.className}`);
  }
  for (const row of document.querySelectorAll(".sk-row > summary")) {
    const cells = [...row.children].filter(seen).map(box);
    for (let i = 0; i < cells.length; i++) for (let j = i + 1; j < cells.length; j++)
      if (over(cells[i], cells[j])) out.push("overlap in a row");
  }
  for (const mark of document.querySelectorAll(".sk-mark")) {
    const text = document.createRange();
    text.selectNodeContents(mark.nextElementSibling || mark.parentElement);
    if ([...text.getClientRects()].some((line) => line.left < box(mark).right + 2)) out.push("a text under its mark");
    if (Math.abs(box(mark).width - box(mark).height) > 0.5) out.push("a mark is not round");
  }
  for (const name of document.querySelectorAll(".sk-tt dt")) {
    const text = document.createRange();
    text.selectNodeContents(name);
    const lines = new Set([...text.getClientRects()].map((line) => line.top));
    if (name.textContent.length < 20 && lines.size > 1) out.push(`broken name: ${name.textContent}`);
  }
  for (const table of document.querySelectorAll(".sk-wide table")) {
    const head = [...table.querySelectorAll("th")].map(box);
    for (const row of table.querySelectorAll("tr[class]")) [...row.children].forEach((cell, i) => {
      if (Math.abs(box(cell).left - head[i].left) > 1) out.push("a value is not under its title");
    });
  }
  const picture = document.querySelector(".sk-pic");
  if (!picture) return out;
  const texts = [...picture.querySelectorAll(":scope > div > svg > text")].map(box);
  const dots = [...picture.querySelectorAll(":scope > div > svg > svg")].map(box);
  const bars = [...picture.querySelectorAll(":scope > div > svg > rect")].map(box);
  for (const a of texts) if (a.right > box(picture).right + 1) out.push("a text of the picture is cut");
  for (const a of texts) for (const b of [...texts, ...dots, ...bars])
    if (a !== b && over(a, b, 2)) out.push("overlap in the picture");
  const links = [...picture.querySelectorAll(".sk-hot")].map(box);
  if (links.length !== dots.length) out.push("a dot has no link");
  dots.forEach((dot, i) => {
    const [x, y] = [links[i].left + links[i].width / 2, links[i].top + links[i].height / 2];
    if (Math.abs(x - (dot.left + dot.right) / 2) > 2 || Math.abs(y - (dot.top + dot.bottom) / 2) > 6) out.push("a link is beside its dot");
  });
  return out;
}"""
"""Returns what overlaps, is cut, or stands where it does not belong."""

CONTRAST = """() => {
  const parts = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const under = (e) => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  let worst = 21;
  for (const e of document.querySelectorAll(".sk-tt *")) {
    if (e.matches("style, title") || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(parts(e.closest("svg") ? style.fill : style.color)), light(under(e))];
    worst = Math.min(worst, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return worst;
}"""
"""Returns the lowest contrast of a text to what is under it."""

LEAST_CONTRAST = 4.5
"""What the guidelines for accessible pages ask for."""

OPEN_ALL = "() => document.querySelectorAll('.sk-tt details').forEach((e) => { e.open = true; })"
