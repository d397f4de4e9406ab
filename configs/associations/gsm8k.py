r"""Does cutting one MLP output improve chain of thought on GSM8K? (arXiv 2406.03068, Table 2)

    python experiments/run.py --config=configs/associations/gsm8k.py:model=phi3,scale=paper \
        --config.figure.train=train.jsonl --config.figure.test=test.jsonl

scale  sizes                                       time              expected result
tiny   a random tiny model on toy sums             10 CPU seconds    none: numbers are meaningless
small  the published model, 100 questions          an hour on a GPU  the table below
paper  the published model, all 1,319 questions    8 hours on a GPU  the table below

    published accuracy in %,
    full model -> cut model    1 example      2              4              8
    Phi-3                      56.0 -> 66.1   72.2 -> 74.4   78.2 -> 77.0   82.7 -> 82.3
    Llama-3.1-8B               44.7 -> 46.1   50.0 -> 50.7   57.6 -> 55.9   56.0 -> 53.8
    Llama-3.1-8B-Instruct      72.6 -> 73.6   74.7 -> 75.6   78.5 -> 77.7   79.7 -> 77.0

The argument `shots` is the number of worked examples before each question. The paper states neither
the examples nor the decoding nor the variant of Phi-3. Here the examples are the first ones of the
training file, decoding is greedy, and Phi-3 is the 4k instruct variant. The files train.jsonl and
test.jsonl come from github.com/openai/grade-school-math. For weights see
configs/associations/published.py.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 3600, "paper": 8 * 3600}
MODELS = {
    "phi3": ("microsoft/Phi-3-mini-4k-instruct", "block_27/mlp/out"),
    "llama": ("meta-llama/Llama-3.1-8B", "block_26/mlp/out"),
    "llama_instruct": ("meta-llama/Llama-3.1-8B-Instruct", "block_26/mlp/out"),
}


def get_config(arg: str = ""):
    arguments = common.parse(
        arg, model=tuple(MODELS), shots=("1", "2", "4", "8"), scale=common.SCALES
    )
    source, matrix = MODELS[arguments["model"]]
    config = common.figure(
        "associations/gsm8k",
        arguments,
        name="associations_gsm8k",
        source=source,
        revision="",
        train="train.jsonl",
        test="test.jsonl",
        shots=int(arguments["shots"]),
        questions=0 if arguments["scale"] == "paper" else 100,  # 0: all questions
        matrix=matrix,
        fraction=0.02,
        new_tokens=256,
        at_once=16,
        dtype="bfloat16",
    )
    if arguments["scale"] == "tiny":
        tiny = "tiny:phi3" if arguments["model"] == "phi3" else "tiny:llama"
        config.figure.update(source=tiny, train="", test="", questions=3, dtype="float32")
        config.figure.update(matrix="block_1/mlp/out", fraction=0.1, new_tokens=8, at_once=2)
    return config
