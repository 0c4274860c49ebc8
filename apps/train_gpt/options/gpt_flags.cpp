#include "lockstep/apps/train_gpt/options/gpt_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "lockstep/apps/shared/planning/layout_policy.h"
#include "lockstep/apps/shared/precision/precision_kind.h"
#include "lockstep/apps/shared/session/run_flags.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_flags.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"
#include "lockstep/apps/train_gpt/options/gpt_train_options.h"
#include "lockstep/models/gpt/gpt_presets.h"

namespace lockstep::apps {
namespace {

template <typename Value>
std::string default_of(Value value) {
  return fmt::format("{}", value);
}

}  // namespace

std::vector<Flag> gpt_data_flags() {
  const GptTrainOptions defaults;
  return {
      {"Data", "data", "LIST",
       "What to train on: generated, a language whose lowest possible loss is known; or files, folders and "
       "patterns such as 'books/*.txt'. Files ending with .bin hold tokens, .jsonl JSON lines, .parquet a "
       "column "
       "of lists of tokens or of text, and all others text; .gz and .zst may follow text. Parquet files may "
       "be "
       "in an object store: s3://bucket/tokens/*.parquet",
       "generated"},
      {"Data", "fact-names", "N",
       "With --data generated: N given names, N family names and N towns. The language then tells where N x "
       "N "
       "people live, which a model must learn by heart (default: none)"},
      {"Data", "fact-share", "X",
       "With --fact-names: share of the sentences that state such a fact, above 0, at most 1",
       default_of(defaults.fact_share)},
      {"Data", "test-data", "LIST", "What to test on (default: the last sequences of --data)"},
      {"Data", "test-share", "X", "Share of --data to test on without --test-data, between 0 and 1",
       default_of(defaults.test_share)},
      {"Data", "limit-train", "N", "Train on N sequences only (default: all)"},
      {"Data", "limit-test", "N", "Test on N sequences at most", default_of(defaults.limit_test)},
      {"Data", "tokenizer", "NAME",
       "Tokenizer of the text: bytes; a tokenizer.json; a vocab.bpe or merges.txt next to its vocabulary; or "
       "a folder with one of them (default: that beside --init-weights, else bytes). For token files, it "
       "shows samples as text"},
      {"Data", "vocabulary-size", "N",
       "Tokens are below N (default: those of the tokenizer, of the model's preset or of --init-weights)"},
      {"Data", "token-format", "NAME",
       "Format of token files: auto, uint16 and uint32 (tokens and nothing else), or llm.c (with its header)",
       token_format_name(defaults.token_format)},
      {"Data", "json-field", "NAME", "Field of JSON lines that holds the text", defaults.json_field},
      {"Data", "parquet-column", "NAME",
       "Column of Parquet files that holds lists of tokens, or text (default: input_ids, tokens or text, the "
       "first of them that there is)"},
      {"Data", "parquet-memory", "SIZE",
       "Parquet files of tokens: keep at most so much of their row groups in memory, such as 512MiB. The "
       "order "
       "of the sequences depends on it, so resume with the same",
       defaults.parquet_memory},
      {"Data", "token-cache", "DIR",
       "Keep the tokens of text files in a folder for the next start (default: turn text into tokens at each "
       "start)",
       "", FlagRole::kOperation},
      {"Data", "shuffle-window", "N",
       "Shuffle within N sequences, for data that is larger than the memory (default: all of the data)"},
  };
}

std::vector<Flag> gpt_model_flags() {
  const GptOptions small = gpt_preset(kSmallModel);
  return {
      {"Model", "model", "NAME",
       fmt::format("One of {}. small, a Llama of {} layers of {}, and bytes have the vocabulary of the "
                   "tokenizer; the others are published models. Weights are random without --init-weights",
                   fmt::join(gpt_preset_names(), ", "), small.num_layers, small.width),
       kSmallModel},
      {"Model", "family", "NAME",
       "gpt2 (learned positions, LayerNorm, GELU, biases) or llama (rotary positions, RMSNorm, SwiGLU) "
       "instead "
       "of the model's own"},
      {"Model", "layers", "N", "Layers (default: those of the model)"},
      {"Model", "hidden", "N", "Length of a token's vector between layers (default: that of the model)"},
      {"Model", "heads", "N", "Heads of attention (default: those of the model)"},
      {"Model", "kv-heads", "N",
       "Heads of keys and values, a divisor of --heads (default: those of the model; if --heads is given, as "
       "many)"},
      {"Model", "mlp-hidden", "N",
       "Length of the hidden vector of a layer's MLP (default: that of the model; if --hidden is given, the "
       "family's usual multiple of it)"},
      {"Model", "experts", "N",
       "MLPs in each layer, of which a router chooses --experts-per-token for each token (default: one MLP). "
       "--mesh expert=2 divides them among replicas"},
      {"Model", "experts-per-token", "N", "Experts that each token uses, of --experts",
       default_of(GptTrainOptions().experts_per_token)},
      {"Model", "shared-experts", "N", "Experts that all tokens use besides",
       default_of(GptTrainOptions().shared_experts)},
      {"Model", "expert-capacity", "X",
       "In training, an expert takes at most X times its even share of a sequence's tokens; the others go "
       "without it. 0: no limit",
       default_of(GptTrainOptions().expert_capacity)},
      {"Model", "sequence-length", "N",
       fmt::format("Tokens in a sequence (default: {} for small, else the model's longest, up to 1024)",
                   small.max_length)},
      {"Model", "dropout", "X", "Dropout of embeddings, attention and residuals",
       default_of(GptTrainOptions().dropout)},
      {"Model", "init-weights", "PATH",
       "Start with weights: a folder with config.json and model.safetensors of Hugging Face's GPT-2 and "
       "Llama "
       "models, which also decides the model; or a file of this model's own weights, such as a checkpoint of "
       "--run-dir. The optimizer starts from scratch"},
  };
}

std::vector<Flag> gpt_training_flags() {
  const GptTrainOptions defaults;
  return {
      {"Training", "steps", "N", "Number of steps; the data is repeated as often as that takes",
       default_of(defaults.steps)},
      {"Training", "test-every", "N",
       "Test after every N steps and at the end. The steps up to a test are called an epoch",
       default_of(defaults.test_every)},
      {"Training", "global-batch-size", "N", "Sequences in a step, over all replicas",
       default_of(defaults.global_batch_size)},
      {"Training", "tokens-per-step", "N",
       "Tokens in a step, over all replicas, instead of --global-batch-size: a multiple of the sequence "
       "length"},
      {"Training", "micro-batch-size", "N",
       "Sequences that a replica computes at once (default: all of its step; with the axis pipeline of "
       "--mesh, four micro batches for each rank along it). Gradients of several micro "
       "batches are added up, so that a large step fits into memory. The result is the same",
       "", FlagRole::kOperation},
      {"Training", "recompute", "WHAT",
       "every_block keeps only the inputs of the model's layers for backward and computes the layers again: "
       "less "
       "memory, and up to a third more time. nothing keeps all. The result is the same",
       gpt_recompute_name(defaults.recompute), FlagRole::kOperation},
      {"Training", "sequence-parallel", "",
       "With the axis tensor of --mesh: each of its ranks has a shard of the sequence between layers that "
       "are "
       "cut, for less memory. The result is the same",
       "", FlagRole::kOperation},
      {"Training", "context-attention", "HOW",
       "With the axis context of --mesh, along which the ranks have different tokens: ring sends keys and "
       "values around the ranks; all_to_all exchanges tokens for heads, which the ranks must divide. The "
       "result is the same",
       gpt_context_attention_name(defaults.context_attention), FlagRole::kOperation},
      pipeline_schedule_flag(),
      stages_per_rank_flag(),
      pipeline_cut_flag(),
      layout_policy_flag("mesh, sharding and micro batches"),
      device_memory_flag(),
      {"Training", "early-stopping", "N",
       "Stop after N tests without a better validation loss; 0 never stops early",
       default_of(defaults.early_stopping)},
      precision_flag(),
      {"Training", "cuda-graph", "",
       "On GPUs, capture a step as a CUDA graph once and replay it. Results stay the same", "",
       FlagRole::kOperation},
      {"Training", "learning-rate", "X", "Highest learning rate of AdamW",
       default_of(defaults.learning_rate)},
      {"Training", "learning-rate-schedule", "NAME",
       "After the warm-up, cosine falls to --final-learning-rate at the last step; constant stays",
       gpt_schedule_name(defaults.schedule)},
      {"Training", "final-learning-rate", "X", "Learning rate at the end of the cosine",
       default_of(defaults.final_learning_rate)},
      {"Training", "warmup-steps", "N",
       "Raise the learning rate from 0 during the first N steps (default: a tenth of the steps, at most "
       "500)"},
      {"Training", "weight-decay", "X",
       "Decay of the weights of matrices; norms, biases and embeddings have none",
       default_of(defaults.weight_decay)},
      {"Training", "beta2", "X", "AdamW's decay of the mean of squared gradients",
       default_of(defaults.beta2)},
      {"Training", "clip-norm", "X",
       "Scale gradients down if their norm over all parameters exceeds X; 0: no limit",
       default_of(defaults.clip_norm)},
      {"Training", "balance-loss", "X",
       "With --experts: add X times the loss that keeps their load even (Switch Transformers) to the one "
       "that "
       "is trained",
       default_of(defaults.balance_loss)},
      {"Training", "router-z-loss", "X",
       "With --experts: add X times the loss that keeps the routers' numbers small (ST-MoE)",
       default_of(defaults.router_z_loss)},
      {"Training", "seed", "N",
       "Seed of the initial weights, of the generated language's texts, of the order of the sequences, of "
       "dropout "
       "and of samples. Equal seeds give equal results",
       default_of(defaults.seed)},
  };
}

namespace {

std::vector<Flag> gpt_sample_flags() {
  const GptTrainOptions defaults;
  return {
      {"Sample", "sample", "TEXT",
       "Let the model continue TEXT after each test (default: it begins texts of its own)", "",
       FlagRole::kOperation},
      {"Sample", "sample-tokens", "N", "Longest sample; 0: none", default_of(defaults.sample_tokens),
       FlagRole::kOperation},
      {"Sample", "temperature", "X",
       "Below 1, likely tokens become more likely; 0 always takes the most likely one",
       default_of(defaults.temperature), FlagRole::kOperation},
      {"Sample", "top-k", "N", "Draw among the N most likely tokens (default: among all)", "",
       FlagRole::kOperation},
      {"Sample", "top-p", "X",
       "Draw among the fewest most likely tokens whose probabilities sum to at least X",
       default_of(defaults.top_p), FlagRole::kOperation},
  };
}

constexpr const char* kGptExamples =
    "\nExamples:\n"
    "  train_gpt                                        # on a generated language, about ten minutes on 2 "
    "cores\n"
    "  train_gpt --data shakespeare.txt --sample 'ROMEO:'     # on bytes of a text\n"
    "  train_gpt --data 'train_*.bin' --test-data val.bin --model gpt2 --tokens-per-step 524288 \\\n"
    "    --micro-batch-size 32 --precision bfloat16 --learning-rate 6e-4  # of GPT-2's size\n"
    "  train_gpt --data notes.jsonl --init-weights models/gpt2 --tokenizer models/gpt2 --learning-rate 1e-5\n"
    "                                                   # fine-tune a published model\n"
    "  train_gpt --replicas 2 --run-dir runs/a          # recorded; open runs/a/report.html\n"
    "  train_gpt --config runs/a/config.json --run-dir runs/b --seed 2\n"
    "                                                   # the same with another seed\n"
    "  train_gpt --backup-dir b --save-every '500 steps'      # run it again to resume\n"
    "  lockstep_launch_local 2 train_gpt                # two worker processes\n"
    "\nExit codes: 0 done, 1 any other error, 2 usage, 3 data, 4 checkpoint, weights or folder,\n"
    "5 replicas or workers that lost each other, 6 loss not finite or replicas that differ,\n"
    "7 no memory, disk space, thread or device. 130 and 143: stopped by SIGINT or SIGTERM, after\n"
    "finishing the step.\n";

}  // namespace

FlagTable gpt_flags(const std::vector<std::string>& strategies) {
  FlagTable table{
      .program = "train_gpt",
      .summary = "Trains a language model of the families of GPT-2 and Llama, on any number of replicas.",
      .after = kGptExamples,
      .alternatives = {{"devices", "replicas"},
                       {"replicas-per-device", "replicas"},
                       {"global-batch-size", "tokens-per-step"},
                       {"test-data", "test-share"}},
      .dependents = {{"parquet-column", "data"},
                     {"parquet-memory", "data"},
                     {"fact-names", "data"},
                     {"fact-share", "data"},
                     {"sequence-length", "model"},
                     {"layers", "model"},
                     {"hidden", "model"},
                     {"heads", "model"},
                     {"kv-heads", "model"},
                     {"mlp-hidden", "model"},
                     {"experts-per-token", "experts"},
                     {"shared-experts", "experts"},
                     {"expert-capacity", "experts"},
                     {"stages-per-rank", "pipeline-schedule"},
                     {"final-learning-rate", "learning-rate-schedule"}},
      .needs = run_needs()};
  for (auto group : {gpt_data_flags(), gpt_model_flags(), gpt_training_flags(), gpt_sample_flags(),
                     run_flags(), strategy_flags(strategies), common_flags()}) {
    for (auto& flag : group) table.flags.push_back(std::move(flag));
  }
  return table;
}

std::string gpt_help_text(const std::vector<std::string>& strategies, const std::string& program) {
  return help_text(gpt_flags(strategies), program);
}

}  // namespace lockstep::apps
