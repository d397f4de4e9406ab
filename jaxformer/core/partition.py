"""Partitions: ordered (pattern, label) rules that decide which parameters are trained.

    frozen_qk = Partition(((".*/(query|key)/.*", "frozen"), (".*", "train")))

The first rule whose pattern matches the whole path gives the label. An uncovered parameter, a rule
without effect and a misspelt alternative such as `qury` are errors, so that a typing error cannot
change an experiment silently (see `jaxformer.core.alternatives`). Labels
other than "frozen" are trained. The optimizer, the priors of the sampler, the parameter counts and
the reports of a run use the same partition.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import optax

from jaxformer.core import alternatives, paths
from jaxformer.core.errors import UserError, did_you_mean

FROZEN = "frozen"
Params = Mapping[str, Any]


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
        rules: (pattern, label) pairs; the first match decides.

    Example:
        partition = Partition(((".*/(query|key)/.*", "frozen"), (".*", "train")))
    """

    def __init__(self, rules: Iterable[tuple[str, str]]):
        if not isinstance(rules, Iterable):
            raise UserError(f"a partition is made of (pattern, label) rules, got {rules!r}.")
        self.rules = tuple(_rule(rule) for rule in rules)
        if not self.rules:
            raise UserError("a partition needs at least one (pattern, label) rule, got none.")
        for pattern, _ in self.rules:
            paths.check_pattern(pattern)

    def __repr__(self) -> str:
        return f"Partition({self.rules!r})"

    def label(self, path: str) -> str | None:
        """Returns the label of a path, None if no rule matches."""
        index = self._first_rule(path)
        return None if index is None else self.rules[index][1]

    def labels(self, params: Params) -> dict[str, Any]:
        """Returns the tree of labels; an uncovered parameter or an unused rule is an error."""
        flat = paths.flatten(params)
        first_rules = {path: self._first_rule(path) for path in flat}
        rule_of_path = {path: i for path, i in first_rules.items() if i is not None}
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
        return paths.unflatten({path: self.rules[i][1] for path, i in rule_of_path.items()})

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
        labels = {label for _, label in self.rules} - {FROZEN}
        if not labels:
            raise UserError(
                f"the rules {self.rules!r} train nothing: give some parameters another label than "
                f"{FROZEN!r}, such as 'train'."
            )
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

    def _first_rule(self, path: str) -> int | None:
        """Returns the index of the first rule that matches a path."""
        matching = (i for i, (pattern, _) in enumerate(self.rules) if paths.matches(pattern, path))
        return next(matching, None)

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
