#include "lockstep/apps/train_gpt/options/gpt_train_options.h"

#include <algorithm>

namespace lockstep::apps {

std::string gpt_schedule_name(GptSchedule schedule) {
  return schedule == GptSchedule::kConstant ? "constant" : "cosine";
}

std::string gpt_recompute_name(GptRecompute recompute) {
  return recompute == GptRecompute::kEveryBlock ? "every_block" : "nothing";
}

std::string gpt_context_attention_name(GptContextAttention attention) {
  return attention == GptContextAttention::kAllToAll ? "all_to_all" : "ring";
}

std::string gpt_family_name(GptFamily family) {
  return family == GptFamily::kGpt2 ? "gpt2" : "llama";
}

std::string token_format_name(TokenFormat format) {
  switch (format) {
    case TokenFormat::kUint16:
      return "uint16";
    case TokenFormat::kUint32:
      return "uint32";
    case TokenFormat::kLlmC:
      return "llm.c";
    case TokenFormat::kAuto:
      break;
  }
  return "auto";
}

bool is_generated(const GptTrainOptions& options) {
  return options.data.size() == 1 && options.data.front() == "generated";
}

GeneratedLanguageOptions language_of(const GptTrainOptions& options) {
  return {.num_names = static_cast<int>(options.fact_names), .fact_share = options.fact_share};
}

void shorten(GptTrainOptions& options) {
  constexpr int64_t kSteps = 5;
  options.steps = options.test_every = std::min(options.steps, kSteps);
  options.warmup_steps = std::min(options.warmup_steps, options.steps);
  options.limit_test = std::min(options.limit_test, kSteps * options.global_batch_size);
  // So that what happens every so many steps happens at all.
  options.log_every = 1;
  if (options.check_replicas > 0) options.check_replicas = 1;
  options.backup_dir.clear();
  options.mlflow_dir.clear();
}

}  // namespace lockstep::apps
