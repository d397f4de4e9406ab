"""Partitions: ordered (pattern, label) rules that decide which parameters are trained.

    frozen_qk = Partition(((".*/(query|key)/.*", "frozen"), (".*", "train")))

The first rule whose pattern matches the whole path gives the label. An uncovered parameter, a rule
without effect and a misspelt alternative such as `qury` are errors, so that a typing error cannot
change an experiment silently (see `jaxformer.core.alternatives`). Labels
other than "frozen" are trained. The optimizer, the priors of the sampler, the parameter counts and
the reports of a run use the same partition.

The label "lora(8)" freezes the kernels that its rule matches, and trains an adapter beside each
(`jaxformer.core.adapters`). The rule covers the adapter's leaves too, unless an earlier rule
matches their own addresses.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import optax

from jaxformer.core import adapters, alternatives, paths
from jaxformer.core.adapters import Lora
from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.core.variants import FIXED_POSITIONS, VARIANTS, variant_named

FROZEN = "frozen"
TRAIN = "train"  # the label whose optimizer trains adapters that have none of their own
Params = Mapping[str, Any]


Rules = str | Mapping[str, str] | Iterable[tuple[str, str]]  # see `Partition`


def _as_rules(rules: Any) -> tuple[tuple[str, str], ...]:
    """Returns the rules of a variant's name, of a dict, or of a sequence of pairs."""
    if isinstance(rules, str):
        if rules not in VARIANTS | FIXED_POSITIONS:
            raise UserError(
                f"a partition is the name of a variant ({', '.join(VARIANTS)}) or rules such as "
                f'((".*/query/.*", "frozen"), (".*", "train")); got the string {rules!r}.'
                + did_you_mean(rules, VARIANTS | FIXED_POSITIONS)
            )
        return variant_named(rules).rules
    if isinstance(rules, Mapping):
        rules = rules.items()
    if not isinstance(rules, Iterable):
        raise UserError(f"a partition is made of (pattern, label) rules, got {rules!r}.")
    return tuple(_rule(rule) for rule in rules)


def _rule(rule: Any) -> tuple[str, str]:
    """Returns a rule as two strings."""
    if isinstance(rule, str) or not isinstance(rule, Sequence) or len(rule) != 2:
        raise UserError(
            'rules are pairs such as ((".*/query/.*", "frozen"), (".*", "train")); got the rule '
            f"{rule!r}."
        )
    return str(rule[0]), str(rule[1])


class Partition:
    """Labels of parameters by path.

    Args:
        rules: (pattern, label) pairs of which the first match decides, {pattern: label} in the same
            order, or the name of a variant (`jaxformer.core.variants`), such as "frozen_qk".

    Example:
        partition = Partition(((".*/(query|key)/.*", "frozen"), (".*", "train")))
    """

    def __init__(self, rules: Rules):
        self.rules = _as_rules(rules)
        if not self.rules:
            raise UserError("a partition needs at least one (pattern, label) rule, got none.")
        for pattern, _ in self.rules:
            paths.check_pattern(pattern)
        self._loras = [adapters.parse(label) for _, label in self.rules]

    def __repr__(self) -> str:
        return f"Partition({self.rules!r})"

    def label(self, path: str) -> str | None:
        """Returns the label of a path, None if no rule matches."""
        if adapters.is_leaf(path, (adapters.LORA_SCALE,)):
            return FROZEN
        index = self._first_rule(path)
        return None if index is None else self._label_by(index, path)

    @property
    def trained_labels(self) -> set[str]:
        """The labels that need an optimizer; that of adapters is "lora"."""
        labels = {
            label if lora is None else adapters.LORA
            for (_, label), lora in zip(self.rules, self._loras, strict=True)
        }
        return labels - {FROZEN}

    def adapters(self, params: Params) -> dict[str, Lora]:
        """The adapters that the rules add, {address of a kernel: adapter}.

        Args:
            params: the tree of arrays or shapes before adapters are added.

        Raises:
            UserError: a rule gives an adapter to something that cannot have one, or a second one.
        """
        if not any(self._loras):
            return {}
        flat, found = paths.flatten(params), {}
        for path, leaf in flat.items():
            # A leaf of an adapter counts as its kernel elsewhere, but not here.
            matching = [i for i in self._matching(path) if not adapters.is_leaf(path)]
            loras = [lora for i in matching if (lora := self._loras[i]) is not None]
            if not loras or self._loras[matching[0]] is None:
                continue
            adapters.check(path, tuple(leaf.shape), loras[0], flat)
            if len(loras) > 1:
                raise UserError(
                    f"two rules give {path} an adapter, {self.rules[matching[0]]!r} and another "
                    "one: a kernel has one adapter, so narrow one of the patterns."
                )
            found[path] = loras[0]
        return found

    def labels(self, params: Params) -> dict[str, Any]:
        """Returns the tree of labels; an uncovered parameter or an unused rule is an error."""
        flat = paths.flatten(params)
        first_rules = {path: self._first_rule(path) for path in flat}
        rule_of_path = {path: i for path, i in first_rules.items() if i is not None}
        for path, i in rule_of_path.items():
            if self._loras[i] is not None and adapters.beside(path, adapters.LORA_A) not in flat:
                raise UserError(
                    f"the rule {self.rules[i]!r} needs an adapter of {path}, which these "
                    "parameters lack: jaxformer.train adds it, or jaxformer.adapters.add does."
                )
            if self.rules[i][1] == adapters.LORA and not adapters.is_leaf(path):
                raise UserError(
                    f"the label {adapters.LORA!r} of {path} has no rank: write lora(8). It would "
                    "train the whole parameter."
                )
        uncovered = [path for path in flat if path not in rule_of_path]
        if uncovered:
            some = ", ".join(uncovered[:3])
            raise UserError(
                f"no rule covers {len(uncovered)} of {len(flat)} parameters, such as {some}; "
                "end the rules with ('.*', label) to cover the rest."
            )
        used = set(rule_of_path.values())
        for index, (pattern, label) in enumerate(self.rules):
            if index not in used:
                self._raise_without_effect(index, pattern, label, list(flat))
            alternatives.check(pattern, flat)
        return paths.map_with_path(lambda path, _: self.label(path), params)

    def split(self, params: Params) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns (trainable, frozen): two trees that together have all paths."""
        flat = paths.flatten(params)
        trainable = {p: leaf for p, leaf in flat.items() if self.label(p) != FROZEN}
        frozen = {p: leaf for p, leaf in flat.items() if self.label(p) == FROZEN}
        return paths.unflatten(trainable), paths.unflatten(frozen)

    @staticmethod
    def merge(trainable: Params, frozen: Params) -> dict[str, Any]:
        """Returns the complete tree of the two halves of `split`."""
        return paths.unflatten(paths.flatten(trainable) | paths.flatten(frozen))

    def count(self, params: Params) -> dict[str, int]:
        """Returns {label: number of parameters} of a tree of arrays or shapes."""
        counts: dict[str, int] = {}
        flat = paths.flatten(params)
        for path, label in paths.flatten(self.labels(params)).items():
            counts[label] = counts.get(label, 0) + math.prod(flat[path].shape)
        return counts

    def optimizer(
        self, transforms: Mapping[str, optax.GradientTransformation]
    ) -> optax.GradientTransformation:
        """Returns a transformation of the trainable half's gradient (`optax.multi_transform`).

        Args:
            transforms: {label: its transformation}.
        """
        labels = self.trained_labels
        if not labels:
            raise UserError(
                f"the rules {self.rules!r} train nothing: give some parameters another label than "
                f"{FROZEN!r}, such as 'train'."
            )
        if adapters.LORA in labels and TRAIN in transforms:
            transforms = {adapters.LORA: transforms[TRAIN], **transforms}
        for label in labels - set(transforms):
            hint = did_you_mean(label, transforms)
            raise UserError(
                f"no optimizer for the label {label!r}.{hint} The labels with an optimizer are: "
                f"{', '.join(transforms)}."
            )

        def labels_of(tree):
            if not isinstance(tree, Mapping):  # optax passes a placeholder when it maps states
                return min(labels)  # any label serves
            return paths.map_with_path(lambda path, _: self.label(path), tree)

        return optax.multi_transform({label: transforms[label] for label in labels}, labels_of)

    def _label_by(self, index: int, path: str) -> str:
        """Returns the label that a rule gives to a path which it matches."""
        if self._loras[index] is None:
            return self.rules[index][1]
        return adapters.LORA if adapters.is_leaf(path) else FROZEN

    def _first_rule(self, path: str) -> int | None:
        """Returns the index of the first rule that matches a path."""
        return next(self._matching(path), None)

    def _matching(self, path: str) -> Iterator[int]:
        """Yields the indices of the rules that match a path.

        A rule with an adapter matches the leaves of an adapter by the address of their kernel.
        """
        kernel = adapters.beside(path, adapters.KERNEL) if adapters.is_leaf(path) else path
        for i, (pattern, _) in enumerate(self.rules):
            if paths.matches(pattern, path if self._loras[i] is None else kernel):
                yield i

    def _raise_without_effect(
        self, index: int, pattern: str, label: str, known_paths: list[str]
    ) -> None:
        shadowed = [path for path in known_paths if paths.matches(pattern, path)]
        if not shadowed:
            raise paths.no_match_error(pattern, known_paths)
        earlier = self.rules[self._first_rule(shadowed[0]) or 0]
        raise UserError(
            f"rule {index} ({pattern!r}, {label!r}) has no effect: earlier rules such as "
            f"{earlier!r} take all {len(shadowed)} parameters it matches; move it up or remove it."
        )
