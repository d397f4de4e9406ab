"""The circuits that follow from the parts of a program, for each kind of ablation.

An edge belongs to the circuit if what it carries decides the answer and changes when it is cut:

    zero      every variable that the answer depends on
    mean      those that differ between prompts: a position is the same in all of them
    resample  those that differ between the two prompts of a pair: both end with the same choice

Of copies one suffices, unless an edge that is cut brings another value ("resample"). A backup is
silent as long as the main head works, and so belongs to a circuit only under "zero", where the
silent sensor leaves the choice: then both circuits are equally small. Heads that cancel belong to
none.

This holds if every step uses what it reads: a table with one entry, or an order in which all keys
come first, has smaller circuits than it seems. `exhaustive.smallest` says so for a small network.
"""

from collections.abc import Callable
from itertools import product

from jaxformer.interp.circuits.graph import Edge
from jaxformer.interp.known.parts import Read
from jaxformer.interp.known.placement import LOGITS, Placed, source_of
from jaxformer.interp.known.program import ANSWER, POSITION, TOKEN, Program

Circuit = frozenset[Edge]


def all_edges(placed: Placed) -> Circuit:
    """The edges by which any part of the program reads."""
    edges = set()
    everything = range(len(placed.plan.parts))
    for number in everything:
        edges |= _edges_into(placed, number, lambda read: True, set(everything))[0]
    edges |= {Edge(placed.places[i].node, LOGITS) for i in _of_answer(placed)}
    return frozenset(edges)


def circuits(program: Program, placed: Placed) -> dict[str, tuple[Circuit, ...]]:
    """{ablation: its smallest circuits}."""
    varying = _varying(placed)
    found = {}
    for ablation in ("resample", "mean", "zero"):

        def carries(read: Read, ablation: str = ablation) -> bool:
            if ablation == "zero":
                return True
            if ablation == "resample" and read.is_gate:
                return False
            return read.variable in varying

        sets = []
        for kept in _choices(program, placed, ablation):
            sets.append(_circuit(placed, kept, carries))
        smallest = min(map(len, sets))
        unique = dict.fromkeys(s for s in sets if len(s) == smallest)
        found[ablation] = tuple(unique)
    return found


def _choices(program: Program, placed: Placed, ablation: str) -> list[set[int]]:
    """The sets of parts that suffice; one of them is enough."""
    options: list[list[set[int]]] = []  # for each step, the choices of parts that may go
    for name in program.steps:
        numbers = {i for i, part in enumerate(placed.plan.parts) if part.step == name}
        by_role: dict[str, set[int]] = {}
        for number in numbers:
            by_role.setdefault(placed.plan.parts[number].role, set()).add(number)
        if "plus" in by_role:
            options.append([numbers])
        elif "copy" in by_role and ablation != "resample":
            copies = by_role["copy"]
            options.append([copies - {kept} for kept in sorted(copies)])
        elif "backup" in by_role:
            silent = by_role["sensor"] | by_role["backup"]
            options.append([silent])
            if ablation == "zero":
                options[-1].append(by_role["sensor"] | by_role["main"])
    everything = set(range(len(placed.plan.parts)))
    return [everything.difference(*gone) for gone in product(*options)]


def _circuit(placed: Placed, kept: set[int], carries: Callable[[Read], bool]) -> Circuit:
    """The edges on which the answer depends, from the logits backwards."""
    waiting = [number for number in _of_answer(placed) if number in kept]
    edges = {Edge(placed.places[number].node, LOGITS) for number in waiting}
    seen = set()
    while waiting:
        number = waiting.pop()
        if number in seen:
            continue
        seen.add(number)

        def matters(read: Read, role: str = placed.plan.parts[number].role) -> bool:
            # Without its sensor, a backup has nothing that silences it.
            return carries(read) and not (role == "backup" and read.is_gate)

        found, sources = _edges_into(placed, number, matters, kept)
        edges |= found
        waiting += sources
    return frozenset(edges)


def _edges_into(
    placed: Placed, number: int, matters: Callable[[Read], bool], kept: set[int]
) -> tuple[set[Edge], list[int]]:
    """The edges into a part that matter, and the parts that they come from."""
    edges, sources = set(), []
    for letter, reads in placed.plan.parts[number].reads.items():
        reader = placed.reader(number, letter)
        for read in reads:
            if not matters(read):
                continue
            source = source_of(read.variable)
            if source is not None:
                edges.add(Edge(source, reader))
            for writer in placed.writers(read.variable, number):
                if writer in kept:
                    edges.add(Edge(placed.places[writer].node, reader))
                    sources.append(writer)
    return edges, sources


def _of_answer(placed: Placed) -> list[int]:
    """The parts that write the answer."""
    parts = placed.plan.parts
    return placed.writers(ANSWER, len(parts))


def _varying(placed: Placed) -> set[str]:
    """The variables that differ between prompts."""
    varying = {TOKEN}
    for part in placed.plan.parts:
        reads = [read for some in part.reads.values() for read in some]
        is_varying = any(read.variable in varying for read in reads)
        if is_varying and part.writes not in placed.plan.constants:
            varying.add(part.writes)
    assert POSITION not in varying
    return varying
