"""Compiles a program into a decoder whose circuit follows from the program."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

from jaxformer.core.errors import UserError, check_choice, check_range
from jaxformer.interp.answers import Answers, score
from jaxformer.interp.circuits.graph import Edge
from jaxformer.interp.circuits.measured import ABLATIONS
from jaxformer.interp.known import equations, meaning, prompts, truth
from jaxformer.interp.known.parts import plan_of
from jaxformer.interp.known.placement import Place, Placed, place
from jaxformer.interp.known.program import ANSWER, NUMBER, Program
from jaxformer.interp.known.prompts import Pairs
from jaxformer.interp.known.weights import GAIN, Shape, model_of, params_of, shape_of
from jaxformer.models.decoder import Decoder

TOLERANCE = 0.01  # the default of `circuits.find`
# All edges outside a circuit, cut together, change the score by less than twice the noise. At this
# noise that is still less than a head that works on a tenth of the prompts.
NOISE_FACTOR, MAX_NOISE = 2.0, 0.03


@dataclass(frozen=True, eq=False)
class Compiled:
    """A network that computes a program, with everything that follows from the program.

    Attributes:
        program: the program.
        model, params: the network.
        circuits: {"resample", "mean" or "zero": the smallest circuits}. Several are equally right.
        edges: the edges by which any part of the program reads.
        roles: {node: the steps and roles of its parts}, such as
            {"block_0/attn/head_1": ["answer: main"]}. Other nodes are idle.
        noise: of the weights. With noise every edge has some effect; the circuits are those whose
            edges have more than `tolerance`.
    """

    program: Program
    model: Decoder
    params: dict[str, Any]
    circuits: dict[str, tuple[frozenset[Edge], ...]]
    edges: frozenset[Edge]
    roles: dict[str, list[str]]
    noise: float
    placed: Placed = field(repr=False)

    @property
    def tolerance(self) -> float:
        """The effect below which edges do not count, as a share of what all edges do.

        It is the tolerance of `circuits.find` and `smallest` with which the circuits are right: all
        edges outside a circuit together change the score by less, and each edge of the circuit
        changes it by more.
        """
        return TOLERANCE + NOISE_FACTOR * self.noise

    @property
    def kinds(self) -> tuple[str, ...]:
        """The reasons why the circuit is hard to find: "redundant", "backup", ..; or "plain"."""
        return self.program.kinds

    @property
    def metric(self) -> Callable[[jax.Array, Answers], jax.Array]:
        """The right minus the wrong logit of a prompt, or the number that the network returns."""
        return prompts.value if self.program.sizes[ANSWER] == NUMBER else score

    @cached_property
    def nodes(self) -> list[str]:
        """The heads and MLPs of the network, idle ones too."""
        spec = self.model.spec
        names = []
        for block in range(spec.layers):
            names += [f"block_{block}/attn/head_{head}" for head in range(spec.heads)]
            names.append(f"block_{block}/mlp")
        return names

    def sample(self, n: int, seed: int = 0) -> Pairs:
        """Draws n pairs of prompts with different answers, for `circuits.Wiring`."""
        return prompts.sample(self.program, n, seed)

    def answers(self, tokens_BxT: Any) -> np.ndarray:
        """The right answer of each prompt, (B,), from the program alone; nan where it has none."""
        return meaning.answers(self.program, np.asarray(tokens_BxT))

    def effects(self, pairs: Pairs, ablation: str) -> dict[str, np.ndarray]:
        """{node: how much the score of each clean prompt loses without it, (B,)}.

        It follows from the equations of the program; idle nodes have 0. With noise it is what the
        network would have without it.

        Args:
            pairs: the prompts, as from `sample`.
            ablation: "resample", "mean" or "zero".
        """
        check_choice("ablation", ablation, ABLATIONS)
        clean, corrupted, answers = pairs
        others = equations.replacements(self.placed, clean, corrupted, ablation)
        whole_B = self._score(equations.outputs(self.placed, clean, {}), answers)
        effects = {node: np.zeros(len(clean)) for node in self.nodes}
        for node in self.placed.nodes:
            without = equations.outputs(self.placed, clean, {node: others[node]})
            effects[node] = whole_B - self._score(without, answers)
        return effects

    def _score(self, found: equations.Outputs, answers: Answers) -> np.ndarray:
        """The score of each prompt, (B,)."""
        last_BxK = equations.answer(found)[:, -1]
        if self.program.sizes[ANSWER] == NUMBER:
            return last_BxK[:, 0]
        rows = np.arange(len(last_BxK))
        right_B, wrong_B = np.asarray(answers[1])[:, 0], np.asarray(answers[2])[:, 0]
        return GAIN * (last_BxK[rows, right_B] - last_BxK[rows, wrong_B])


def compile_program(
    program: Program,
    *,
    heads: int | None = None,
    layers: int | None = None,
    width: int | None = None,
    head_width: int | None = None,
    mlp_width: int | None = None,
    seed: int | None = None,
    idle: int = 0,
    rotated: bool = False,
    noise: float = 0.0,
) -> Compiled:
    """Turns a program into the weights of a decoder, and states the circuit that follows.

    Networks of the same vocabulary, length and sizes share compiled programs, so give the sizes of
    the largest one if you measure many.

    Args:
        program: the program.
        heads, layers, width, head_width, mlp_width: the sizes of the decoder; by default those that
            the program needs. Without `heads`, the layers are as few as possible.
        seed: draws the places of all parts, and everything random. Without it, each part takes the
            first head of the first block in which it can work.
        idle: so many of the heads without a part get random weights, which read everything and
            write where no answer reads. MLPs without a part then do as well. Others are zero.
        rotated: whether the residual stream is rotated, so that no number of it has a meaning.
        noise: the standard deviation of Gaussian noise on all weights, as a share of the root mean
            square of the weights of the same name; at most .03.

    Returns:
        The network with its circuits.

    Raises:
        UserError: the program does not fit into the sizes.

    Example:
        program = known.Program(
            vocab_size=10,
            length=8,
            steps={
                "before": known.Aggregate(known.back(1), "token"),
                "answer": known.Aggregate(known.equal("token", "before"), "token"),
            },
        )
        network = known.compile(program)
        pairs = network.sample(32)
        wiring = circuits.Wiring(network.model, network.params, *pairs, metric=network.metric)
        assert circuits.find(wiring).edges in network.circuits["resample"]
    """
    if not isinstance(program, Program):
        raise UserError(
            f"compile needs a jaxformer.interp.known.Program, got {type(program).__name__}."
        )
    check_range("noise", noise, 0, MAX_NOISE)
    check_range("idle", idle, 0)
    is_random = seed is not None
    if not is_random and (idle or rotated or noise):
        raise UserError("idle heads, a rotation and noise are drawn: give compile a seed.")
    random = np.random.default_rng(seed if is_random else 0)
    placed = place(plan_of(program), heads, layers, mlp_width, random if is_random else None)
    shape = shape_of(placed, heads, layers, width, head_width, mlp_width)
    idle_places = _idle_places(placed, shape, idle, random) if idle else []
    return Compiled(
        program=program,
        model=model_of(program, shape),
        params=params_of(program, placed, shape, idle_places, rotated, noise, random),
        circuits=truth.circuits(program, placed),
        edges=truth.all_edges(placed),
        roles=_roles(placed),
        noise=noise,
        placed=placed,
    )


def _idle_places(
    placed: Placed, shape: Shape, n_heads: int, random: np.random.Generator
) -> list[Place]:
    """So many heads without a part, and all MLPs without one."""
    used = set(placed.places)
    every_head = [Place(b, h) for b in range(shape.layers) for h in range(shape.heads)]
    free = [its_place for its_place in every_head if its_place not in used]
    if n_heads > len(free):
        raise UserError(
            f"idle={n_heads} heads need as many without a part, but {len(free)} of "
            f"{len(every_head)} are left: give idle={len(free)}, or more heads or layers."
        )
    chosen = [free[i] for i in random.permutation(len(free))[:n_heads]]
    every_mlp = [Place(block, None) for block in range(shape.layers)]
    return chosen + [its_place for its_place in every_mlp if its_place not in used]


def _roles(placed: Placed) -> dict[str, list[str]]:
    roles: dict[str, list[str]] = {}
    for part, its_place in zip(placed.plan.parts, placed.places, strict=True):
        roles.setdefault(its_place.node, []).append(f"{part.step}: {part.role}")
    return roles
