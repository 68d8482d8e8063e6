"""The world around the price monitor: a catalogue, competitors' pages, and the shop's price system.

None of it knows about graphs or checkpoints.
"""

from __future__ import annotations

import csv
import hashlib
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLUMNS = ("sku", "name", "category", "our_price", "cost", "competitor_ref")
FRESH_DAYS = 2
SEED = "price monitor 1"


class InputError(Exception):
    """What the user gave cannot be used; the message is for the user."""


class BadPage(Exception):
    """The page gives no price that may be believed; another try may."""


class RepeatedKey(Exception):
    """The price system has seen this key before and did nothing."""


@dataclass(frozen=True)
class Item:
    """One line of the catalogue; amounts are whole cents."""

    sku: str
    name: str
    our_price: int
    cost: int
    competitor_ref: str


def cents(text: str) -> int:
    """Return a price such as `12.90` as whole cents; raises ValueError for anything else."""
    price = re.fullmatch(r"([0-9]{1,9})(?:\.([0-9]{1,2}))?", text.strip())
    amount = int(price[1]) * 100 + int((price[2] or "").ljust(2, "0")) if price else 0
    if not amount:
        raise ValueError(f"{text!r} is not a price")
    return amount


def money(amount: int) -> str:
    return f"{amount // 100}.{amount % 100:02}"


def read_catalogue(path: Path) -> list[Item]:
    """Return the items in the order of the file."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file, strict=True)
            names = list(table.fieldnames or ())
            if missing := [name for name in COLUMNS if name not in names]:
                raise InputError(f"catalogue {path} has no column {', '.join(missing)}")
            if repeated := [name for name in COLUMNS if names.count(name) > 1]:
                raise InputError(f"catalogue {path} has more than one column {', '.join(repeated)}")
            items: dict[str, Item] = {}
            for line in table:
                where = f"catalogue {path}, line {table.line_num}"
                item = read_item(line, where)
                if item.sku in items:
                    raise InputError(f"{where}: sku {item.sku} stands in it twice")
                items[item.sku] = item
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"catalogue {path} cannot be read: {error}") from error
    if not items:
        raise InputError(f"catalogue {path} has no items")
    return list(items.values())


def read_item(line: Mapping[str | None, Any], where: str) -> Item:
    if any(line.get(None, ())):  # what is left over
        raise InputError(f"{where}: more fields than columns; a comma belongs into quotes")
    field = {name: (line[name] or "").strip() for name in COLUMNS}
    if not re.fullmatch(r"[A-Za-z0-9._-]+", field["sku"]):  # it becomes part of a key
        raise InputError(f"{where}: {field['sku']!r} is not a sku")
    if not field["competitor_ref"]:
        raise InputError(f"{where}: no competitor_ref")
    try:
        our_price, cost = cents(field["our_price"]), cents(field["cost"])
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    return Item(field["sku"], field["name"], our_price, cost, field["competitor_ref"])


@dataclass(frozen=True)
class Page:
    """What a crawl brought back."""

    price: str
    age_days: int


Crawl = Callable[[Item, int], Page]


def crawl_page(item: Item, attempt: int) -> Page:
    """Stand in for a crawler on a bad day: it fails, comes back empty or with an old page, repeatably.

    The same item and attempt always give the same answer, so that a run that was killed can be compared with one
    that was not.
    """
    per_page = _dice(item.competitor_ref)
    per_try = _dice(item.competitor_ref, attempt)
    if per_page < 0.02 or per_try < 0.08:
        raise ConnectionError("the page did not answer")
    price = money(item.our_price * (80 + int(_dice("price", item.competitor_ref) * 36)) // 100)
    if per_page < 0.05 or per_try < 0.14:
        return Page(price="", age_days=0)
    return Page(price, age_days=9 if per_try < 0.19 else 0)


def _dice(*what: object) -> float:
    digest = hashlib.sha256("\0".join((SEED, *map(str, what))).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def read_price(page: Page) -> int:
    """Return the price on a page in cents; an empty, unreadable or old one is never a price."""
    if not page.price.strip():
        raise BadPage("the page shows no price")
    if page.age_days > FRESH_DAYS:
        raise BadPage(f"the page is {page.age_days} days old")
    try:
        return cents(page.price)
    except ValueError as error:
        raise BadPage(str(error)) from error


class PriceTable:
    """The shop's price system: what every item costs now, and every change with the key it came under.

    Args:
        path: SQLite file.
        items: Items to put on sale, at the catalogue's price, where the file does not know them yet.
        strict: Refuse a key that was used before. Without it a repeated change is made again.
    """

    def __init__(self, path: Path, items: Sequence[Item], *, strict: bool) -> None:
        self.strict = strict
        self._path = path
        self._lock = threading.Lock()
        try:
            # An empty name and `:memory:` would be files that vanish.
            self._db = sqlite3.connect(path.absolute(), isolation_level=None, timeout=10, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._failed(error) from error
        kind = "UNIQUE INDEX IF NOT EXISTS price_changes_once" if strict else "INDEX IF NOT EXISTS price_changes_key"
        with self._use("IMMEDIATE") as db:
            db.execute("CREATE TABLE IF NOT EXISTS prices (sku TEXT PRIMARY KEY, price INTEGER NOT NULL)")
            db.execute(
                "CREATE TABLE IF NOT EXISTS price_changes (key TEXT NOT NULL, sku TEXT NOT NULL, "
                "old_price INTEGER NOT NULL, new_price INTEGER NOT NULL, at TEXT NOT NULL)"
            )
            try:
                db.execute(f"CREATE {kind} ON price_changes (key)")
            except sqlite3.IntegrityError as error:
                raise InputError(
                    f"prices file {path} has keys that were used twice, which a strict system never has; "
                    "go on with --provider plain, or take another --prices and --thread"
                ) from error
            db.executemany("INSERT OR IGNORE INTO prices VALUES (?, ?)", [(item.sku, item.our_price) for item in items])

    def price(self, sku: str) -> int:
        """Return what the item costs now."""
        price: int = self._one("SELECT price FROM prices WHERE sku = ?", sku)[0]
        return price

    def find(self, key: str) -> tuple[int, int] | None:
        """Return the old and the new price of the change made under a key, or None."""
        found: tuple[int, int] | None = self._one("SELECT old_price, new_price FROM price_changes WHERE key = ?", key)
        return found

    def count(self, prefix: str) -> int:
        """Return how many keys that begin with `prefix` were used."""
        count: int = self._one(
            "SELECT count(DISTINCT key) FROM price_changes WHERE substr(key, 1, ?) = ?", len(prefix), prefix
        )[0]
        return count

    def change(self, key: str, sku: str, old_price: int, new_price: int) -> None:
        """Set a price; raises RepeatedKey if the system refuses the key."""
        with self._use("IMMEDIATE") as db:
            try:
                db.execute(
                    "INSERT INTO price_changes (key, sku, old_price, new_price, at) "
                    "VALUES (?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ'))",
                    (key, sku, old_price, new_price),
                )
            except sqlite3.IntegrityError as error:
                if error.sqlite_errorname.endswith(("_UNIQUE", "_PRIMARYKEY")):
                    raise RepeatedKey(key) from error
                raise
            db.execute("UPDATE prices SET price = ? WHERE sku = ?", (new_price, sku))

    def close(self) -> None:
        self._db.close()

    def _one(self, sql: str, *values: object) -> Any:
        with self._use("DEFERRED") as db:
            return db.execute(sql, values).fetchone()

    @contextmanager
    def _use(self, mode: str) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock, self._db as db:
                db.execute(f"BEGIN {mode}")
                yield db
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> InputError:
        return InputError(f"prices file {self._path} cannot be used: {error}")
