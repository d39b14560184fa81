"""A model folder without weights, of the shape of Qwen3.6-27B, for SGLang's `--load-format dummy`.

    python make_model.py FOLDER        (needs the package tokenizers)

The shape is from public sources (a launch script, read-outs of the config, the tensor manifest of the MTP head); the
linear-attention head counts and the rope numbers are from memory. The tokenizer is a small one of its own, padded with
made-up words to the real size. No token of it is mere white space: the answers of dummy weights are rubbish, and a
newline said 256 times would be an empty answer, which genmon rightly does not take for a server that serves.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

_VOCAB = 248_320
_SPECIAL = {
    248044: "<|endoftext|>",
    248045: "<|im_start|>",
    248046: "<|im_end|>",
    248053: "<|vision_start|>",
    248054: "<|vision_end|>",
    248055: "<|vision_pad|>",
    248056: "<|image_pad|>",
    248057: "<|video_pad|>",
    248068: "<think>",
    248069: "</think>",
}
_TEMPLATE = (
    "{%- for m in messages %}"
    "{%- if m.content is string %}{%- set c = m.content %}"
    "{%- else %}{%- set c = m.content | selectattr('type','equalto','text') | map(attribute='text') | join('') %}"
    "{%- endif %}"
    "{{- '<|im_start|>' + m.role + '\n' + c + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}"
    "{%- else %}{{- '<think>\n' }}{%- endif %}{%- endif %}"
)
_TEXT = {
    "model_type": "qwen3_5_text",
    "dtype": "bfloat16",
    "vocab_size": _VOCAB,
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "max_position_embeddings": 262_144,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "use_cache": True,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_output_gate": True,
    "full_attention_interval": 4,
    "layer_types": ["full_attention" if layer % 4 == 0 else "linear_attention" for layer in range(1, 65)],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "mamba_ssm_dtype": "float32",
    "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": False,
    "mlp_only_layers": [],
    "partial_rotary_factor": 0.25,
    "eos_token_id": 248044,
    "bos_token_id": None,
    "pad_token_id": None,
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
        "rope_type": "default",
        "rope_theta": 10_000_000,
        "partial_rotary_factor": 0.25,
    },
}
_VISION = {
    "model_type": "qwen3_5",
    "depth": 27,
    "hidden_size": 1152,
    "hidden_act": "gelu_pytorch_tanh",
    "intermediate_size": 4304,
    "num_heads": 16,
    "in_channels": 3,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 5120,
    "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [],
    "initializer_range": 0.02,
}
_CONFIG = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "image_token_id": 248056,
    "video_token_id": 248057,
    "vision_start_token_id": 248053,
    "vision_end_token_id": 248054,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "text_config": _TEXT,
    "vision_config": _VISION,
}
_IMAGES = {"size": {"longest_edge": 16_777_216, "shortest_edge": 65_536}, "patch_size": 16, "temporal_patch_size": 2}
_IMAGES |= {"merge_size": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "processor_class": "Qwen3VLProcessor"}


def tokenizer() -> Tokenizer:
    """A byte-level BPE of the real size, trained on Python's own library."""
    small = Tokenizer(models.BPE())
    small.normalizer = normalizers.Sequence(
        [normalizers.Replace("\n", "⏎"), normalizers.Replace(Regex(r"[ \t]{2,}"), " ")]
    )
    small.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    small.decoder = decoders.ByteLevel()
    files = [str(path) for path in sorted(Path(os.__file__).parent.glob("*.py"))[:120]]
    small.train(files, trainers.BpeTrainer(vocab_size=6000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    whole = json.loads(small.to_str())
    words = whole["model"]["vocab"]
    for number in range(len(words), _VOCAB):
        words[_SPECIAL.get(number, f"\u0120w{number}")] = number
    made = Tokenizer.from_str(json.dumps(whole))
    made.add_special_tokens([AddedToken(text, special=True) for text in _SPECIAL.values() if "think" not in text])
    made.add_tokens([AddedToken(text, special=False) for text in _SPECIAL.values() if "think" in text])
    return made


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer()
    if made.token_to_id("<think>") != 248068 or made.get_vocab_size() != _VOCAB:
        raise SystemExit("the tokenizer came out with other ids than the model's")
    made.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "chat_template.jinja").write_text(_TEMPLATE)
    files = {
        "config": _CONFIG,
        "tokenizer_config": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": 262_144,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "bos_token": None,
            "unk_token": None,
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "chat_template": _TEMPLATE,
            "image_token": "<|image_pad|>",
            "video_token": "<|video_pad|>",
            "vision_bos_token": "<|vision_start|>",
            "vision_eos_token": "<|vision_end|>",
        },
        "generation_config": {
            "eos_token_id": [248046, 248044],
            "pad_token_id": 248044,
            "do_sample": True,
            "temperature": 1.0,
            "top_p": 0.95,
            "top_k": 20,
        },
        "preprocessor_config": _IMAGES | {"image_processor_type": "Qwen2VLImageProcessorFast"},
        "video_preprocessor_config": _IMAGES
        | {
            "size": {"longest_edge": 25_165_824, "shortest_edge": 4096},
            "video_processor_type": "Qwen3VLVideoProcessor",
        },
    }
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
