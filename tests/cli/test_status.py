"""The status of a thread is what the graph itself would say."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt

from langgraph_statekit import open_saver
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.cli.serializer import ForeignSerializer
from langgraph_statekit.status import FINISHED, INTERRUPTED, next_nodes, status_of
from tests.cli.kit import asking, chain, named
from tests.graphs.builders import fan_out, nested, question


def steps(graph: Any, inputs: list[Any]) -> None:
    for each in inputs:
        with suppress(ValueError):
            if isinstance(each, str):
                graph.update_state(named("t"), {"log": ["update"]}, as_node=each)
            else:
                graph.invoke(each, named("t"), durability="sync")


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (lambda saver: chain("a", "b", "c", saver=saver), [{"log": []}, {"log": []}]),
        (lambda saver: chain("a", "b", saver=saver, interrupt_before=["b"]), [{"log": []}, "a", None, "b", "a"]),
        (asking, [{"log": []}, Command(resume="yes")]),
        (asking, [{"log": []}, Command(resume="fail"), Command(resume="yes"), {"log": []}]),
        (lambda saver: fan_out(3).compile(checkpointer=saver), [{"log": []}, {"log": []}]),
        (lambda saver: nested().compile(checkpointer=saver), [{"log": []}, Command(resume="yes")]),
        (lambda saver: question().compile(checkpointer=saver), [{"log": []}, Command(resume="yes")]),
    ],
    ids=["chain", "breakpoint", "asking", "failing", "fan-out", "nested", "question"],
)
def test_the_next_nodes_of_every_checkpoint_are_those_that_the_graph_tells(make: Any, inputs: list[Any]) -> None:
    with open_saver("memory://") as saver:
        graph = make(saver)
        steps(graph, inputs)
        reader = StatekitSaver(saver.backend, serde=ForeignSerializer())
        states = list(graph.get_state_history(named("t")))
        assert len(states) > 2
        for state in states:
            found = reader.get_tuple(state.config)
            assert found is not None
            told = set(next_nodes(found.checkpoint, found.checkpoint["channel_values"]))
            assert told == {each.name for each in state.tasks}, state.metadata


def test_a_functional_workflow_is_interrupted_and_then_finished() -> None:
    with open_saver("memory://") as saver:

        @task
        def double(value: int) -> int:
            return 2 * value

        @entrypoint(checkpointer=saver)
        def workflow(value: int) -> int:
            return double(value).result() + int(interrupt("more?"))

        told = []
        for each in (1, Command(resume=3)):
            workflow.invoke(each, named("t"), durability="sync")
            found = saver.get_tuple(named("t"))
            assert found is not None
            told.append(status_of(found.checkpoint, found.checkpoint["channel_values"], found.pending_writes or ()))
    assert [status.name for status in told] == [INTERRUPTED, FINISHED]
    assert told[0].next == ["__start__"]
