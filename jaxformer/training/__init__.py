"""Training: one jitted step, one loop, and a population of seeds and learning rates.

Terms:
    member          one network of a run, with its seed and its learning rate
    population      all members of a run: every seed at every learning rate, in one program
    seed            an integer that fixes a member's initial parameters and training data
    learning rate   multiplies the update of a member; the optimizer's schedule peaks at 1
    partition       rules over parameter paths that decide what is trained and what is frozen
    dispatch        one call of the compiled program, which runs up to 100 steps
    callback        a part of a run that acts between dispatches (`callbacks.py`)
    session         the host side of a run: rows, validation, checkpoints, result

Letters in the names of arrays: M members, B examples of a batch, T tokens, K scored positions,
V vocabulary, L layers. `loss_MxB` has shape (M, B).

`jaxformer.train` runs all of it. The same training in a plain loop:

    import jax
    from jaxformer.core import optim
    from jaxformer.core.partition import Partition
    from jaxformer.core.settings import DataSettings, DeviceSettings, TrainSettings
    from jaxformer.models.decoder import decoder
    from jaxformer.tasks.retrieval import Retrieval
    from jaxformer.tasks.source import make_source
    from jaxformer.training.population import population
    from jaxformer.training.setup import make_setup
    from jaxformer.training.step import make_step

    task = Retrieval(max_pairs=3, vocab=16)
    sizes = dict(width=16, layers=2, heads=2, mlp_width=64)
    model = decoder(vocab_size=task.vocab_size, length=task.length, **sizes)
    data = make_source(task, DataSettings(test_size=40, validation_size=40), 8)
    members = population(0, 2, (1e-2, 1e-3))  # seeds 0 and 1 at two learning rates
    rules = Partition(((".*/(query|key)/.*", "frozen"), (".*", "train")))
    tx = optim.optimizer(rules, {"train": optim.AdamW()}, 1.0, optim.schedule("cosine", 20, 5))
    setup = make_setup(task, model, rules, tx, data, members, TrainSettings(8), DeviceSettings())

    heldout = data.heldout()
    state, batch_at = setup.create(), jax.jit(setup.batch_at(heldout.fingerprints))
    step, evaluate = jax.jit(make_step(setup.apply, task, tx)), setup.evaluation()
    for i in range(20):
        state, metrics = step(state, batch_at(i))
        if (i + 1) % 10 == 0:
            loss_MxB = evaluate(state.trainable, state.frozen, heldout.validation)["loss"].value
            print(i + 1, metrics["loss"], loss_MxB.mean(1))  # a number for each of four members
"""
