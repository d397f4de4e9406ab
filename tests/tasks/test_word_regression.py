"""The word regression uses the words that indicate a class, and ignores their order."""

import numpy as np

from jaxformer.tasks import word_regression


def documents(seed, n):
    """Returns texts with ten random words; "good" and "bad" tell three quarters of the classes."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 2, n)
    texts = []
    for label in classes:
        words = [f"word{i}" for i in rng.integers(0, 50, 10)]
        if rng.random() < 0.5:
            words.append("GOOD" if label else "bad")
        rng.shuffle(words)
        texts.append(" ".join(words))
    return texts, classes


def test_words_tell_as_much_of_the_class_as_they_can():
    train, validation, (texts, classes) = (documents(i, n) for i, n in enumerate((800, 200, 1000)))
    fitted = word_regression.fit(train, validation, 2)
    accuracy = (fitted.predict(texts) == classes).mean()
    assert 0.72 < accuracy < 0.79  # right where the class is told, and in half of the others
    assert fitted.predict(["nothing known", "so GOOD!", "bad's", "a bad, bad film"])[3] == 0
    good, bad = (fitted.weights[fitted.columns[word]] for word in ("good", "bad"))
    assert good[1] - good[0] > 1 and bad[0] - bad[1] > 1
