"""Circuits: the edges of a network that carry an answer, found and measured.

    wiring = circuits.Wiring(model, params, clean, corrupted, answers)
    effects = wiring.patch()                     each edge alone, exactly; for small networks
    scores = wiring.attribute(steps=5)           each edge, by integrated gradients
    print(circuits.curve(wiring, scores))        faithfulness over size, beside null networks
    found = circuits.find(wiring)                the smallest circuit that a search finds
    circuits.alternatives(wiring, found)         others that are as small
    circuits.minimality(wiring, found.edges), circuits.completeness(wiring, found.edges)
    circuits.to_json(file, wiring, found.edges, scores), to_csv(file, wiring, scores)
    circuits.to_svg(file, wiring, found.edges)   a picture

An edge joins what the embedding, a head or an MLP writes to what the queries, keys or values of a
later head, a later MLP or the logits read. `jaxformer.interp.known` has networks whose circuit is
known, and these functions find it.

Sources: Wang et al. 2211.00593, Conmy et al. 2304.14997, Hanna et al. 2403.17806, Mueller et al.
2504.13151. `attribute` integrates over the edges, not over the embedding as EAP-IG does, so that
the scores of all edges sum to the effect of all edges.
"""

from jaxformer.interp.circuits.against_null import Total
from jaxformer.interp.circuits.curve import Curve, Point, curve, faithfulness
from jaxformer.interp.circuits.export import to_csv, to_json, to_svg
from jaxformer.interp.circuits.graph import Edge, Graph, graph_of
from jaxformer.interp.circuits.measured import ABLATIONS, Wiring
from jaxformer.interp.circuits.search import Found, alternatives, completeness, find, minimality

__all__ = [
    "ABLATIONS",
    "Curve",
    "Edge",
    "Found",
    "Graph",
    "Point",
    "Total",
    "Wiring",
    "alternatives",
    "completeness",
    "curve",
    "faithfulness",
    "find",
    "graph_of",
    "minimality",
    "to_csv",
    "to_json",
    "to_svg",
]
