"""Exports a trained decoder as a Llama folder for Hugging Face's `transformers`.

    jaxformer export RUN FOLDER

    AutoModelForCausalLM.from_pretrained(FOLDER)    AutoTokenizer.from_pretrained(FOLDER)

  RUN         the folder of a run that trained on prepared text
  FOLDER      the new folder: config.json, model.safetensors, tokenizer.json, and a model card
  --member=I  a member of the population (default: the first seed of the chosen learning rate)

Standard, Frozen-QK, Frozen-MLP and the random transformer are Llamas. MixiT cannot be exported: a
Llama has no fixed mixing. The branch factor of the authors' preset is multiplied into the last
matrix of each branch. The logits agree to 1e-4 in float32.
"""

try:
    import experiments  # noqa: F401 (imported first: handles Ctrl-C during the other imports)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import sys
from collections.abc import Sequence

from experiments.cli.model_card import model_card
from jaxformer import build
from jaxformer.core.errors import UserError
from jaxformer.io.run_folder import Workdir
from jaxformer.loading import load_run
from jaxformer.models.export import export
from jaxformer.runtime.command_line import Parser, command


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("run")
    parser.add_argument("folder")
    parser.add_argument("--member", type=int, default=None)
    args = parser.parse_args(argv)
    model, params, config = load_run(args.run, args.member)[:3]
    prepared = getattr(build.task(config), "prepared", None)
    if prepared is None:
        raise UserError(f"{args.run} was not trained on prepared text: there is no tokenizer.")
    run = Workdir(args.run)
    is_finished = (run / "result.json").exists()  # a stopped run has weights, but no scores
    card = model_card(run.read("result.json"), run.read("config.json")) if is_finished else ""
    print(f"exported to {export(model, params, args.folder, prepared.tokenizer, card)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
