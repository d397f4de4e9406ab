"""The files of trained members: a damaged one is reported once and its member trained again."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxformer.studies.anatomy.parts import FROZEN, WHOLE_NETWORK, Variant
from jaxformer.studies.anatomy.store import Store
from jaxformer.studies.anatomy.study import Member, Result, Study
from jaxformer.studies.anatomy.training import Trained
from jaxformer.training.metrics import Mean

MLP = Variant("MLP", FROZEN)
SCORE = {"accuracy": Mean(0.5, 0.1, 9)}
TRAINED = Trained(SCORE, SCORE, [(10, 1.5)], None, 2.0)


def half(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def a_digit(file):
    file.write_text(file.read_text().replace("0.5", "0.9"))


def no_checksum(file):
    file.write_text("\n".join(x for x in file.read_text().splitlines() if "sha256" not in x))


def another_member(file):
    file.write_bytes((file.parent / "whole-rate0.01-seed0.json").read_bytes())


def no_text(file):
    file.write_bytes(b"\xff\xfe")


@pytest.mark.parametrize("damage", [half, a_digit, no_checksum, another_member, no_text])
def test_a_damaged_member_is_reported_once_and_trained_again(tmp_path, capsys, damage):
    store = Store(tmp_path)
    for variant in (WHOLE_NETWORK, MLP):
        store.put(variant, 0, 1e-2, TRAINED)
    assert Store(tmp_path).get(MLP, 0, 1e-2) == TRAINED and not capsys.readouterr().err
    file = tmp_path / "MLP-frozen-rate0.01-seed0.json"
    damage(file)
    store = Store(tmp_path)
    assert store.get(MLP, 0, 1e-2) is None and store.get(MLP, 0, 1e-2) is None
    assert store.get(WHOLE_NETWORK, 0, 1e-2) == TRAINED
    assert capsys.readouterr().err.count(f"warning: {file} is damaged (") == 1
    store.put(MLP, 0, 1e-2, TRAINED)
    assert Store(tmp_path).get(MLP, 0, 1e-2) == TRAINED


def test_variants_whose_names_differ_in_punctuation_only_keep_their_files(tmp_path, capsys):
    names = ["MLP, up", "MLP/up", "MLP: up"]
    variants = [Variant(name, FROZEN) for name in names]
    results = [TRAINED._replace(seconds=float(i)) for i in range(3)]
    for _ in range(2):  # the second time they replace their own files
        for variant, trained in zip(variants, results, strict=True):
            Store(tmp_path).put(variant, 0, 1e-2, trained)
    assert [Store(tmp_path).get(variant, 0, 1e-2) for variant in variants] == results
    assert not capsys.readouterr().err and len([*tmp_path.iterdir()]) == 3
    # A file of an older version has the short name, whichever of them wrote it.
    assert (tmp_path / "MLP-up-frozen-rate0.01-seed0.json").exists()


def test_parameters_belong_to_a_learning_rate(tmp_path, capsys):
    params = {"block": {"kernel": np.ones(2)}}
    Store(tmp_path).put_params(1e-2, params)
    (kernel,) = Store(tmp_path).get_params(1e-2)["block"].values()
    np.testing.assert_array_equal(kernel, 1)
    assert Store(tmp_path).get_params(3e-2) is None
    file = tmp_path / "whole.npz"
    half(file)
    assert Store(tmp_path).get_params(1e-2) is None
    assert f"warning: {file} is damaged (" in capsys.readouterr().err
    np.savez(file, kernel=np.ones(2))  # without a learning rate
    assert Store(tmp_path).get_params(1e-2) is None


def test_a_longer_training_has_a_file_beside_that_of_the_steps_of_the_subject(tmp_path):
    """Members of older versions, which have no steps of their own, are found again."""
    longer = TRAINED._replace(seconds=5.0)
    Store(tmp_path).put(MLP, 0, 1e-2, TRAINED)
    Store(tmp_path).put(MLP, 0, 1e-2, longer, times=2)
    assert Store(tmp_path).get(MLP, 0, 1e-2) == TRAINED
    assert Store(tmp_path).get(MLP, 0, 1e-2, 2) == longer
    assert Store(tmp_path).get(MLP, 0, 1e-2, 4) is None
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["MLP-frozen-rate0.01-seed0-steps2x.json", "MLP-frozen-rate0.01-seed0.json"]
    assert json.loads((tmp_path / names[1]).read_text())["member"] == ["MLP, frozen", 0, 0.01]


class OneTrainer:
    """Returns the learning rate as the only parameter."""

    def train(self, variant, seed, rate):
        return TRAINED, {"rate_of": np.array(rate)}


def test_the_network_of_the_chosen_rate_is_examined_after_a_kill(tmp_path, monkeypatch):
    """A kill came between a member and its parameters: the file has those of the rate before."""

    class Subject:
        rates = (1e-2, 3e-2)

        class task:
            chosen_by = "accuracy"

    store = Store(tmp_path)
    store.put(WHOLE_NETWORK, 0, 1e-2, TRAINED)
    store.put_params(1e-2, {"rate_of": np.array(1e-2)})
    better = {"accuracy": Mean(0.9, 0.1, 9)}
    store.put(WHOLE_NETWORK, 0, 3e-2, TRAINED._replace(validation=better))
    study = Study(Subject, [], Store(tmp_path))
    monkeypatch.setattr(study, "_trainer", lambda variant: OneTrainer())
    assert float(study.whole_params()["rate_of"]) == 3e-2
    assert float(Store(tmp_path).get_params(3e-2)["rate_of"]) == 3e-2


def test_the_networks_of_other_seeds_are_kept_and_diverged_ones_left_out(tmp_path):
    subject: Any = SimpleNamespace(rates=(1e-2,), task=SimpleNamespace(chosen_by="accuracy"))
    study = Study(subject, [], Store(tmp_path), max_seeds=4)
    for seed in range(4):
        params = {"block": {"kernel": np.full(2, seed)}}
        trained = TRAINED._replace(diverged_at=5 if seed == 2 else None)
        study.keep(Result(Member(WHOLE_NETWORK, seed, 1e-2), trained, params))
    again = Study(subject, [], Store(tmp_path), max_seeds=4)
    kernels = [params["block"]["kernel"][0] for params in again.other_params(9)]
    assert kernels == [1, 3] and again.whole_params()["block"]["kernel"][0] == 0
    assert len(again.other_params(1)) == 1
