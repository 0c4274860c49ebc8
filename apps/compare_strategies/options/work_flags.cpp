#include "lockstep/apps/compare_strategies/options/work_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"
#include "lockstep/apps/train_ctr/ctr_flags.h"
#include "lockstep/apps/train_gpt/options/gpt_command_line.h"
#include "lockstep/apps/train_gpt/options/gpt_flags.h"
#include "lockstep/apps/train_gpt/options/gpt_plan.h"
#include "lockstep/apps/train_images/options/flags.h"
#include "lockstep/apps/train_images/options/read_options.h"
#include "lockstep/models/gpt/gpt_presets.h"

namespace lockstep::apps {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// A kind of models.
struct WorkKind {
  std::vector<std::string> models;
  std::string text;  ///< the models, for messages
  /// Its flags of data, model and training.
  std::vector<std::string> flags;
};

const std::vector<std::string> kImageFlags{
    "data",         "limit-train",    "test-share",      "image-column",
    "label-column", "parquet-memory", "skip-bad",        "model",
    "image-size",   "head",           "sync-batch-norm", "global-batch-size",
    "precision",    "optimizer",      "learning-rate",   "momentum",
    "seed"};
const std::vector<std::string> kClickFlags{"data",      "train-rows", "skip-bad",      "parquet-memory",
                                           "model",     "table-rows", "embedding-dim", "global-batch-size",
                                           "precision", "optimizer",  "learning-rate", "seed"};
const std::vector<std::string> kTokenFlags{"data",
                                           "limit-train",
                                           "tokenizer",
                                           "vocabulary-size",
                                           "token-format",
                                           "json-field",
                                           "parquet-column",
                                           "parquet-memory",
                                           "token-cache",
                                           "shuffle-window",
                                           "model",
                                           "family",
                                           "layers",
                                           "hidden",
                                           "heads",
                                           "kv-heads",
                                           "mlp-hidden",
                                           "sequence-length",
                                           "dropout",
                                           "init-weights",
                                           "global-batch-size",
                                           "tokens-per-step",
                                           "micro-batch-size",
                                           "recompute",
                                           "sequence-parallel",
                                           "context-attention",
                                           "precision",
                                           "learning-rate",
                                           "weight-decay",
                                           "beta2",
                                           "clip-norm",
                                           "seed"};

WorkKind kind_of_images() {
  return {{"simple_cnn", "mobilenet_v2"}, "simple_cnn or mobilenet_v2", kImageFlags};
}

WorkKind kind_of_clicks() {
  return {{"wide_deep", "dlrm"}, models_of_clicks_text(), kClickFlags};
}

WorkKind kind_of_tokens() {
  return {gpt_preset_names(), "small or another language model", kTokenFlags};
}

/// Returns the flags of `groups` that `names` lists.
std::vector<Flag> taken(const std::vector<std::vector<Flag>>& groups, const std::vector<std::string>& names) {
  std::vector<Flag> flags;
  for (const auto& group : groups) {
    for (const auto& flag : group) {
      if (contains(names, long_name(flag))) flags.push_back(flag);
    }
  }
  return flags;
}

std::string text_with_default(const Flag& flag) {
  return flag.otherwise.empty() ? flag.text : fmt::format("{} (default: {})", flag.text, flag.otherwise);
}

const Flag* find_flag(const std::vector<Flag>& flags, const std::string& name) {
  const auto found =
      std::find_if(flags.begin(), flags.end(), [&](const Flag& flag) { return long_name(flag) == name; });
  return found == flags.end() ? nullptr : &*found;
}

/// Appends flags of another kind of models, whose name begins their texts. A flag that is there already gets
/// the texts of both kinds, unless its text is that of the first kind, `of_images`.
void add_of_kind(const std::string& kind, std::vector<Flag> of_kind, const std::vector<Flag>& of_images,
                 std::vector<Flag>& flags) {
  for (auto& flag : of_kind) {
    const std::string name = long_name(flag);
    const Flag* of_image = find_flag(of_images, name);
    if (of_image != nullptr && of_image->text == flag.text && of_image->otherwise == flag.otherwise) continue;
    const auto same =
        std::find_if(flags.begin(), flags.end(), [&](const Flag& other) { return long_name(other) == name; });
    if (same == flags.end()) {
      flag.text = fmt::format("{}: {}", kind, flag.text);
      const auto last = std::find_if(flags.rbegin(), flags.rend(),
                                     [&](const Flag& other) { return other.group == flag.group; });
      flags.insert(last.base(), std::move(flag));
    } else {
      same->text = fmt::format("{}. {}: {}", text_with_default(*same), kind, text_with_default(flag));
      same->otherwise.clear();
    }
  }
}

/// Refuses flags that only other kinds of models have.
void check_kind(const Arguments& given, const std::vector<WorkKind>& kinds, const WorkKind& chosen,
                const std::string& model) {
  for (const auto& kind : kinds) {
    for (const auto& flag : kind.flags) {
      if (contains(chosen.flags, flag) || !given.has(flag) || given.text(flag) == "false") continue;
      std::vector<std::string> models;
      for (const auto& other : kinds) {
        if (contains(other.flags, flag)) models.push_back(other.text);
      }
      given.refuse_together(
          flag, fmt::format("expected it with --model {} only, but got {}", fmt::join(models, ", "), model));
    }
  }
}

TrainOptions read_image_work(const Arguments& given, const std::vector<std::string>& strategies) {
  TrainOptions work;
  read_data(given, work);
  read_model(given, work);
  read_training(given, work);
  read_strategy(given, strategies, work);
  work.limit_test = 1;  // nothing is tested
  return work;
}

CtrOptions read_click_work(const Arguments& given, const std::vector<std::string>& strategies) {
  CtrOptions work;
  read_ctr_work(given, work);
  read_strategy(given, strategies, work);
  work.test_rows = 1;
  return work;
}

GptTrainOptions read_token_work(const Arguments& given, const std::vector<std::string>& strategies) {
  GptTrainOptions work;
  read_gpt_work(given, work);
  read_strategy(given, strategies, work);
  work.limit_test = 1;
  work.schedule = GptSchedule::kConstant;
  work.warmup_steps = 0;  // --warmup-steps of this program are steps that are not timed
  // Sizes that do not fit each other are refused before any process starts.
  const BaseModel base = base_model(work);
  work.sequence_length = sequence_length_of(work, base);
  const GptOptions model = model_to_train(work, base, base.options.vocabulary_size);
  work.global_batch_size = make_gpt_plan(work, model, work.sequence_length, 1).global_batch_size;
  work.tokens_per_step = 0;
  return work;
}

}  // namespace

std::string models_of_clicks_text() {
  return "wide_deep or dlrm";
}

std::vector<Flag> work_flags(const std::vector<std::string>& strategies) {
  const auto of_images = taken({data_flags(), model_flags(), training_flags()}, kImageFlags);
  std::vector<Flag> flags = of_images;
  add_of_kind("Clicks", taken({ctr_data_flags(), ctr_model_flags(), ctr_training_flags()}, kClickFlags),
              of_images, flags);
  add_of_kind("Tokens", taken({gpt_data_flags(), gpt_model_flags(), gpt_training_flags()}, kTokenFlags),
              of_images, flags);
  for (auto& flag : taken({strategy_flags(strategies)},
                          {"cross-device-ops", "communication-timeout", "threads", "communication",
                           "exchange-algorithm", "encrypt", "gradient-compression"}))
    flags.push_back(std::move(flag));
  return flags;
}

ComparedWork read_work(const Arguments& given, const std::vector<std::string>& strategies) {
  const std::vector<WorkKind> kinds{kind_of_images(), kind_of_clicks(), kind_of_tokens()};
  std::vector<std::string> models;
  for (const auto& kind : kinds) models.insert(models.end(), kind.models.begin(), kind.models.end());
  const std::string model = given.name("model", models, model_name(TrainOptions().model));
  const auto chosen = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const WorkKind& kind) { return contains(kind.models, model); });
  check_kind(given, kinds, *chosen, model);
  if (chosen == kinds.begin()) return read_image_work(given, strategies);
  if (chosen == kinds.begin() + 1) return read_click_work(given, strategies);
  return read_token_work(given, strategies);
}

}  // namespace lockstep::apps
