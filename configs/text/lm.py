r"""Which parts of a language model must be trained? (MixiT papers, Table 3 of version A, 2 of B)

    python experiments/run.py --config=configs/text/lm.py:variant=frozen_qk,scale=tiny

variant  standard | frozen_qk | frozen_mlp (queries and keys, or MLPs, keep their initial values) |
         mixit (fixed random mixing) | random (only embeddings are trained) |
         random_mixit (fixed random mixing; only embeddings and positions are trained) |
         random_mixit_fixed (fixed random mixing; only embeddings are trained)
text     shakespeare | wikitext103 | fineweb_edu
preset   paper (the paper's text) | authors (the authors' code: biases, sink head, scalings)

scale  sizes                                  time                 expected test loss
tiny   the packaged chain, width 64           20 CPU seconds       Standard 3.71 bits a byte
                                                                   (bigram: 3.68)
small  tiny Shakespeare, BPE of 1,024         10 to 20 CPU min     Standard 2.36 bits a byte
       tokens, width 128, 3 seeds                                  (trigram: 2.49)
paper  12 layers, width 512, 40,000 steps     days on a GPU        published log perplexity:
       of 512 sequences                                            Standard 2.78, Frozen-QK 3.07,
                                                                   MixiT 3.73 (wikitext103)

Prepare the text of the small scale once (docs/data.md has the texts of the paper scale):

    python experiments/prepare.py --dataset text:tinyshakespeare.txt --tokenizer bpe:1024 \
        --out runs/data/tinyshakespeare-bpe1024

For any other text add --config.task.tokens=FOLDER. Validation loss chooses the learning rate.
Unigram, bigram and trigram baselines are fitted on the training text. At paper scale a line or a
document is one example, cut or padded as in the authors' code. `log_perplexity` is then the mean of
the losses of batches, as in their code, and `loss` the mean over all scored tokens.
"""

from configs import common

SECONDS = {"tiny": 20, "small": 900, "paper": 5 * 86400}
TEXTS = {
    "shakespeare": common.SHAKESPEARE,
    "wikitext103": ("wikitext103-llama", ""),
    "fineweb_edu": ("fineweb_edu-llama", ""),
}


def get_config(arg: str = ""):
    arguments = common.parse(
        arg,
        variant=(*common.VARIANTS, *common.FIXED_POSITIONS),
        text=(*TEXTS,),
        scale=common.SCALES,
        preset=common.PRESETS,
    )
    config, prepared = common.training("text/lm", arguments), TEXTS[arguments["text"]]
    config.task = common.prepared_text("next_token", window=32, batch_of=0)
    common.decoder(config, width=64, layers=2, heads=4)
    if arguments["scale"] == "tiny":
        config.data.update(test_size=200, validation_size=100)
        config.optim.learning_rate = (1e-2,)
        config.train.update(batch_size=32, steps=200, eval_every=50)
    elif arguments["scale"] == "small":
        config.task = common.prepared_text("next_token", *prepared, window=64, batch_of=0)
        common.decoder(config, width=128, layers=2, heads=4)
        config.data.update(test_size=10_000, validation_size=10_000)
        config.n_seeds = 3
        config.optim.learning_rate = (3e-3, 1e-2)
        config.train.update(batch_size=32, steps=800, eval_every=200)
    else:
        has_documents = arguments["text"] != "shakespeare"  # Shakespeare is a single document
        config.task = common.prepared_text(
            "next_token", *prepared, documents=has_documents, window=256, batch_of=512
        )
        common.decoder(config, width=512, layers=12, heads=8)
        config.data.update(test_size=4_358, validation_size=4_096)
        config.optim.update(learning_rate=(1e-3, 5e-4, 1e-4), schedule="linear", warmup=1600)
        config.optim.labels = dict(train=common.adamw(weight_decay=0.01))
        config.train.update(batch_size=512, steps=40_000, log_every=100, eval_every=2_000)
        config.train.update(loss_chunk=4096)
        config.n_seeds = 3
    config.train.throughput = True
    return config
