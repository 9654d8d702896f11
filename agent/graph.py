"""The machine.

    START -> propose -> assemble -> inspect -> check -> prove -> measure -> decide -> propose | END

One node a tool. A stage that stops the candidate, or cannot judge it, goes straight to `decide`, and so does a model that gives no
answer. What each node does is in `agent.nodes`; every node may be run again at any time and does nothing twice.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from langgraph.graph import END, START, StateGraph

from agent import nodes
from agent.context import EpisodeContext
from agent.state import State
from tools.evaluation import Stage

STAGES = tuple(stage.value for stage in Stage)
STEPS = len(STAGES) + 2
"""Supersteps of the longest turn."""


def build() -> StateGraph[State, EpisodeContext]:
    """The graph, not yet compiled."""
    graph = StateGraph(State, context_schema=EpisodeContext)
    graph.add_node("propose", nodes.propose)
    for stage in Stage:
        graph.add_node(stage.value, nodes.stage_node(stage))
    graph.add_node("decide", nodes.decide)

    graph.add_edge(START, "propose")
    for before, after in zip(("propose", *STAGES[:-1]), STAGES, strict=True):
        graph.add_conditional_edges(before, _unless_stopped(after), [after, "decide"])
    graph.add_edge(STAGES[-1], "decide")
    graph.add_conditional_edges("decide", _again, ["propose", END])
    return graph


def _unless_stopped(after: str) -> Any:
    def route(state: State) -> str:
        return "decide" if state.get("stopped") else after

    return route


def _again(state: State) -> str:
    return END if state.get("stop") else "propose"


def fingerprint(prompts: str) -> str:
    """sha256 over nodes, edges and the digest of the prompts: a run continues only on the machine that began it."""
    drawn = build().compile().get_graph()
    edges = sorted((edge.source, edge.target, edge.conditional) for edge in drawn.edges)
    shape = {"nodes": sorted(drawn.nodes), "edges": edges, "prompts": prompts}
    return hashlib.sha256(json.dumps(shape).encode()).hexdigest()
