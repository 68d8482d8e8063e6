"""LangGraph's conformance kit over any saver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import Face


async def conforms(
    make: Callable[[], StatekitSaver], face: Callable[[StatekitSaver], Face] = lambda saver: saver, capability: str = ""
) -> None:
    """Assert that savers on one store pass every test of the kit, or of one capability."""

    @checkpointer_test(name="statekit")
    async def factory() -> AsyncIterator[Face]:
        async with make() as saver:
            yield face(saver)

    wanted = {capability} if capability else {each.value for each in Capability}
    report = await validate(factory, capabilities=wanted)
    for name in wanted:
        result = report.results[name]
        assert result.failures == [], name
        assert result.passed is True, name
        assert result.tests_passed > 0, name
    assert report.conformance_level() == "FULL"
