"""Linear probes: can a class be read off an activation, on examples that did not fit the probe?

Shapes: B examples, N features, K classes.
"""

from typing import NamedTuple

import numpy as np

from jaxformer.core.errors import UserError, check_choice, check_range

KINDS = ("linear", "logistic")
RIDGE = 1e-4  # of the mean variance of a feature
LOGISTIC_STEPS = 200


class Classes(NamedTuple):
    """Labels as numbers of classes."""

    number_B: np.ndarray
    names: tuple

    @property
    def most_frequent(self) -> float:
        """The accuracy of naming the most frequent class."""
        return float(np.bincount(self.number_B).max() / len(self.number_B))


def classes_of(labels: np.ndarray, n_examples: int) -> Classes:
    """The classes of labels; raises UserError if a probe of them says nothing."""
    labels = np.asarray(labels)
    if labels.shape != (n_examples,):
        raise UserError(
            f"expected a label for each of {n_examples} examples, got the shape {labels.shape}."
        )
    if np.issubdtype(labels.dtype, np.floating):
        raise UserError("labels are classes, such as whole numbers or texts; got real numbers.")
    names, number_B = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        only = names.tolist()[0]
        raise UserError(
            f"all labels are {only!r}: a probe needs two classes or more, so give other examples "
            "or labels."
        )
    return Classes(number_B, tuple(names.tolist()))


def check_sizes(n_examples: int, n_features: int, folds: int) -> None:
    """Raises UserError if a probe would fit anything."""
    check_range("folds", folds, 2, n_examples)
    n_fitted = n_examples - -(-n_examples // folds)
    if n_features >= n_fitted:
        raise UserError(
            f"the activation has {n_features} features, and each probe is fitted on {n_fitted} "
            f"examples: it would fit any labels. Give more than {n_features} examples to each of "
            f"the {folds} folds, or a narrower address."
        )


def accuracy(
    features_BxN: np.ndarray, classes_B: np.ndarray, *, kind: str, folds: int, seed: int
) -> float:
    """The share of examples whose class is read off right, by probes that were fitted on others."""
    check_choice("kind", kind, KINDS)
    fit = _linear if kind == "linear" else _logistic
    n_classes = int(classes_B.max()) + 1
    order = np.random.default_rng(seed).permutation(len(classes_B))
    is_right_B = np.zeros(len(classes_B), bool)
    for held_out in np.array_split(order, folds):
        fitted = np.setdiff1d(order, held_out)
        # Features on one scale, so that the penalty treats them alike.
        mean_N, deviation_N = features_BxN[fitted].mean(0), features_BxN[fitted].std(0)
        scaled_BxN = (features_BxN - mean_N) / np.where(deviation_N > 0, deviation_N, 1.0)
        scaled_BxM = np.concatenate([scaled_BxN, np.ones((len(scaled_BxN), 1))], 1)
        weight_MxK = fit(scaled_BxM[fitted], classes_B[fitted], n_classes)
        guess = (scaled_BxM[held_out] @ weight_MxK).argmax(1)
        is_right_B[held_out] = guess == classes_B[held_out]
    return float(is_right_B.mean())


def _linear(features_BxM: np.ndarray, classes_B: np.ndarray, n_classes: int) -> np.ndarray:
    """Ridge regression on the classes, in closed form."""
    gram_MxM = features_BxM.T @ features_BxM
    penalty = RIDGE * len(features_BxM) * np.eye(len(gram_MxM))
    return np.linalg.solve(gram_MxM + penalty, features_BxM.T @ np.eye(n_classes)[classes_B])


def _logistic(features_BxM: np.ndarray, classes_B: np.ndarray, n_classes: int) -> np.ndarray:
    """Multinomial logistic regression with a small penalty."""
    from scipy.optimize import minimize  # takes a second to import

    target_BxK = np.eye(n_classes)[classes_B]
    shape = features_BxM.shape[1], n_classes

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight_MxK = flat.reshape(shape)
        logits_BxK = features_BxM @ weight_MxK
        logits_BxK = logits_BxK - logits_BxK.max(1, keepdims=True)
        log_p_BxK = logits_BxK - np.log(np.exp(logits_BxK).sum(1, keepdims=True))
        slope_MxK = features_BxM.T @ (np.exp(log_p_BxK) - target_BxK) / len(classes_B)
        value = -(target_BxK * log_p_BxK).sum(1).mean() + RIDGE * (weight_MxK**2).sum()
        return float(value), (slope_MxK + 2 * RIDGE * weight_MxK).ravel()

    options = {"maxiter": LOGISTIC_STEPS}
    found = minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(shape)
