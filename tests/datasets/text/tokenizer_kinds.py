"""Makes tokenizers of the kinds that well-known models have, with the Python package `tokenizers`, out of generated text."""

import functools
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokenizer_texts import TextMaker

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
MISTRAL_NEMO = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
                r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]

# Small ones are trained fast; the benchmark sets a larger one.
VOCABULARY_SIZE = 1500
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@functools.lru_cache
def corpus(seed=1):
    maker = TextMaker(seed)
    return [maker.text() for _ in range(600)]


def trained(tokenizer, special):
    tokenizer.train_from_iterator(
        corpus(), trainers.BpeTrainer(vocab_size=VOCABULARY_SIZE, special_tokens=special, show_progress=False,
                                               initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def byte_level(pre_tokenizer, special=("<|endoftext|>",), normalizer=None, **model):
    """A byte-level tokenizer whose special tokens come after its vocabulary, as most files have them."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    trained(tokenizer, [])
    for name, value in model.items():
        setattr(tokenizer.model, name, value)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def splits(*patterns, last=None):
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*steps, last or pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def template(tokenizer, single):
    used = [name for name in single.split() if name != "$A"]
    return processors.TemplateProcessing(single=single, special_tokens=[(name, tokenizer.token_to_id(name)) for name in used])


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained(tokenizer, ["<|endoftext|>"])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def roberta():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), ["<s>", "</s>"])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", tokenizer.token_to_id("</s>")),
                                                            ("<s>", tokenizer.token_to_id("<s>")))
    return tokenizer


def llama3():
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", *(f"<|reserved_{i}|>" for i in range(50))]
    tokenizer = byte_level(splits(LLAMA3), special, ignore_merges=True)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template(tokenizer, "<|begin_of_text|> $A")])
    return tokenizer


def qwen2():
    tokenizer = byte_level(splits(QWEN2), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizers.NFC())
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    return tokenizer


def gpt4o():
    return byte_level(splits(GPT4O), ["<|endoftext|>", "<|endofprompt|>"])


def mistral_nemo():
    tokenizer = byte_level(splits(MISTRAL_NEMO), ["<s>", "</s>", "[INST]", "[/INST]"], ignore_merges=True)
    tokenizer.post_processor = template(tokenizer, "<s> $A </s>")
    return tokenizer


def deepseek():
    last = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return byte_level(splits(*DEEPSEEK, last=last), ["<|end\u2581of\u2581sentence|>"], normalizers.Sequence([]))


def smollm():
    return byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def nfkc():
    tokenizer = byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel(add_prefix_space=True)]),
                           normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("ab", "\u00e4")]))
    tokenizer.add_tokens([AddedToken("\ufb01x", normalized=True), AddedToken("\ufb01y", normalized=False)])
    return tokenizer


def nfd():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=normalizers.NFD())


def nfkd():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=normalizers.NFKD())


def character_level(pre_tokenizer=None, normalizer=None, trained_with=None, decoder=None, special=("<unk>", "<s>", "</s>"), texts=None):
    """A tokenizer of characters with tokens of bytes, as files have that were made of SentencePiece models."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if trained_with:
        tokenizer.pre_tokenizer = trained_with
    tokenizer.train_from_iterator(texts or corpus(), trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE + 700, special_tokens=[*special, *BYTES], limit_alphabet=400, show_progress=False))
    # The trainer takes the tokens of bytes for special ones, but they are ordinary tokens of the vocabulary.
    result = Tokenizer(models.BPE(**model_of(tokenizer)))
    if normalizer:
        result.normalizer = normalizer
    if pre_tokenizer:
        result.pre_tokenizer = pre_tokenizer
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    result.decoder = decoder or decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    result.add_special_tokens(list(special))
    return result


def model_of(tokenizer):
    model = json.loads(tokenizer.to_str())["model"]
    return {"vocab": model["vocab"], "merges": [tuple(pair) for pair in model["merges"]], "unk_token": "<unk>", "fuse_unk": True,
            "byte_fallback": True}


def llama2():
    tokenizer = character_level(trained_with=pre_tokenizers.Metaspace(),
                                normalizer=normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]))
    tokenizer.add_tokens([AddedToken("foo", normalized=True), AddedToken("<bar>", normalized=False, rstrip=True)])
    tokenizer.post_processor = template(tokenizer, "<s> $A")
    return tokenizer


def mistral():
    return character_level(trained_with=pre_tokenizers.Metaspace(),
                           pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first", split=False))


def gemma():
    tokenizer = character_level(
        trained_with=pre_tokenizers.Metaspace(prepend_scheme="never"), normalizer=normalizers.Replace(" ", "\u2581"),
        pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous"),
        decoder=decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]))
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in
                          ["\n\n", "\n\n\n", "\u2581\u2581", "\u2581\u2581\u2581\u2581", "<table>", "</table>", "\t\t"]])
    return tokenizer


def spaces_in_tokens():
    """Merges across spaces: trained on whole texts."""
    texts = [text[begin:begin + 40] for text in corpus(2) for begin in range(0, len(text), 40)]
    return character_level(trained_with=pre_tokenizers.Metaspace(split=False), texts=texts,
                           pre_tokenizer=pre_tokenizers.Metaspace(split=False), decoder=decoders.Sequence(
                               [decoders.ByteFallback(), decoders.Metaspace()]))


def split_marks():
    return character_level(trained_with=pre_tokenizers.Metaspace(), normalizer=normalizers.NFKC(),
                           pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Digits(individual_digits=True)]))


KINDS = [gpt2, roberta, llama3, qwen2, gpt4o, mistral_nemo, deepseek, smollm, nfkc, nfd, nfkd, llama2, mistral, gemma, spaces_in_tokens,
         split_marks]


@functools.lru_cache
def written(name):
    """The tokenizer.json of a kind."""
    return {make.__name__: make for make in KINDS}[name]().to_str()


def made(name):
    return Tokenizer.from_str(written(name))
