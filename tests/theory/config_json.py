"""The relevant fields of the config.json of well-known models."""

BERT = {
    "model_type": "bert",
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "max_position_embeddings": 512,
    "initializer_range": 0.02,
    "hidden_act": "gelu",
    "intermediate_size": 3072,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
GPT2 = {
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "n_head": 12,
    "n_positions": 1024,
    "n_ctx": 1024,
    "activation_function": "gelu_new",
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-5,
}
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 22,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "intermediate_size": 5632,
    "max_position_embeddings": 2048,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-5,
}
PYTHIA = {
    "model_type": "gpt_neox",
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 2048,
    "hidden_act": "gelu",
    "initializer_range": 0.02,
    "rotary_pct": 0.25,
    "use_parallel_residual": True,
}
VIT = {
    "model_type": "vit",
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
    "hidden_act": "gelu",
    "initializer_range": 0.02,
}
T5 = {
    "model_type": "t5",
    "num_layers": 6,
    "d_model": 512,
    "d_ff": 2048,
    "d_kv": 64,
    "num_heads": 8,
    "n_positions": 512,
}
DISTILBERT = {
    "model_type": "distilbert",
    "n_layers": 6,
    "dim": 768,
    "n_heads": 12,
    "hidden_dim": 3072,
    "max_position_embeddings": 512,
    "activation": "gelu",
    "initializer_range": 0.02,
    "sinusoidal_pos_embds": False,
}
