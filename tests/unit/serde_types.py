"""Classes and values that the serializer's tests store."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import threading
from typing import Any, Generic, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import pytest
from hypothesis import strategies as st
from langchain_core.messages import (
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel, Field, PrivateAttr, RootModel, SecretStr, computed_field, field_validator

from langgraph_statekit.checkpoint.serde import StatekitSerializer
from langgraph_statekit.errors import DataError

OURS = StatekitSerializer()
LANGGRAPHS = JsonPlusSerializer()
BERLIN = ZoneInfo("Europe/Berlin")


def again(value: Any, serde: JsonPlusSerializer = OURS) -> Any:
    return serde.loads_typed(OURS.dumps_typed(value))


def refusal(value: Any) -> str:
    with pytest.raises(DataError) as caught:
        OURS.dumps_typed(value)
    return str(caught.value)


class Text(str):
    """A subclass that LangGraph stores as its base."""


class Number(float): ...


class Pair(tuple[int, int]): ...


class Moment(dt.datetime): ...


class Point(NamedTuple):
    x: int
    y: Any = None


class Shade(enum.Enum):
    RED = 1
    GREEN = "g"
    OPTIONS = {"a": 1}  # noqa: RUF012
    BOTH = (1, 2)


class Word(str, enum.Enum):  # noqa: UP042 - the older spelling is the common one
    A = "a"


class Level(enum.IntEnum):
    HIGH = 3


class Bits(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass
class Item:
    sku: Any
    price: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: Any


@dataclasses.dataclass
class Derived:
    a: int
    doubled: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.doubled = self.a * 2


@dataclasses.dataclass
class Growing:
    a: int

    def __post_init__(self) -> None:
        self.a += 1


@dataclasses.dataclass
class Seeded:
    a: int
    seed: dataclasses.InitVar[int] = 3

    def __post_init__(self, seed: int) -> None:
        self.seeded = seed


@dataclasses.dataclass
class Cached:
    a: int

    @functools.cached_property
    def twice(self) -> int:
        return self.a * 2


@dataclasses.dataclass
class Failure(Exception):
    code: Any


class Model(BaseModel):
    a: Any = 0
    t: tuple[int, ...] = ()


class Wider(Model):
    b: int = 1


class Outer(BaseModel):
    model: Model
    models: list[Model] = []


class Hidden(BaseModel):
    a: int
    secret: str = Field("default", exclude=True)


class Private(BaseModel):
    a: int
    _count: int = PrivateAttr(0)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)


class Increments(BaseModel):
    a: int

    @field_validator("a")
    @classmethod
    def add_one(cls, value: int) -> int:
        return value + 1


class Strict(BaseModel, extra="forbid"):
    a: int = Field(alias="A")
    inner: Model | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return self.a * 2


class Open(BaseModel, extra="allow"):
    a: int = 0


class Password(BaseModel):
    password: SecretStr


class Numbers(RootModel[list[int]]): ...


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    content: T


IntBox = Box[int]


class Shelf:
    class Book(BaseModel):
        title: str

    class Colour(enum.Enum):
        RED = 1

    class Point(NamedTuple):
        x: int
        y: int


def private(count: int) -> Private:
    model = Private(a=1)
    model._count = count
    return model


def with_attribute(obj: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(obj, name, value)
    return obj


def local_class_objects() -> tuple[Any, Any]:
    class Local(BaseModel):
        a: int = 1

    @dataclasses.dataclass
    class LocalData:
        a: int = 1

    return Local(), LocalData()


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.datetimes()
    | st.datetimes(timezones=st.just(dt.UTC))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.sets(st.integers(-9, 9) | st.text("abc") | st.binary(max_size=2)),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text("abc") | st.integers(-9, 9) | st.tuples(st.integers(0, 9), st.text("ab")), inner)
        | st.builds(Item, inner, inner)
        | st.builds(Model, a=inner)
        | st.builds(Point, st.integers(0, 9), inner)
        | st.builds(lambda x: ToolMessage("t", tool_call_id="1", artifact=x), inner)
    ),
    max_leaves=12,
)
