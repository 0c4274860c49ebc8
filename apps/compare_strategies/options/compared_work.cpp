#include "lockstep/apps/compare_strategies/options/compared_work.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/apps/train_gpt/options/gpt_facts.h"
#include "lockstep/apps/train_images/options/train_settings.h"

namespace lockstep::apps {
namespace {

std::vector<Setting> settings_of_clicks(const CtrOptions& work) {
  return {{"data", work.data, {}},
          {"train-rows", work.train_rows, {}},
          {"skip-bad", work.skip_bad, {}},
          {"parquet-memory", work.parquet_memory, {}},
          {"model", ctr_model_name(work.model), {}},
          {"table-rows", work.table_rows, {}},
          {"embedding-dim", work.embedding_dim, {}},
          {"global-batch-size", work.global_batch_size, {}},
          {"precision", ctr_precision_name(work.precision), {}},
          {"optimizer", ctr_optimizer_name(work.optimizer), {}},
          {"learning-rate", work.learning_rate, {}},
          {"seed", work.seed, {}},
          {"cross-device-ops", work.cross_device_ops, {}},
          {"communication-timeout", work.communication_timeout_seconds, {}},
          {"threads", int64_t{work.threads}, {}},
          {"communication", work.communication, {}},
          {"exchange-algorithm", work.exchange_algorithm, {}},
          {"encrypt", work.encrypt, {}},
          {"gradient-compression", work.gradient_compression, {}}};
}

std::string summary_of(const TrainOptions& work) {
  return fmt::format("{}, {}x{}, batches of {}, {}, {} at a learning rate of {}", model_name(work.model),
                     work.image_size, work.image_size, work.global_batch_size, precision_name(work.precision),
                     optimizer_name(work.optimizer), work.learning_rate);
}

std::string summary_of(const CtrOptions& work) {
  return fmt::format("{}, {} by {} embeddings, batches of {}, {}, {} at a learning rate of {}",
                     ctr_model_name(work.model), work.table_rows, work.embedding_dim, work.global_batch_size,
                     ctr_precision_name(work.precision), ctr_optimizer_name(work.optimizer),
                     work.learning_rate);
}

std::string summary_of(const GptTrainOptions& work) {
  std::string model = work.init_weights.empty() ? work.model : work.init_weights;
  if (work.family) model += ", " + gpt_family_name(*work.family);
  for (const auto& [size, name] :
       {std::pair(work.layers, "layers"), std::pair(work.hidden, "hidden"), std::pair(work.heads, "heads"),
        std::pair(work.kv_heads, "heads of keys and values"), std::pair(work.mlp_hidden, "in MLPs")}) {
    if (size != 0) model += fmt::format(", {} {}", size, name);
  }
  return fmt::format("{}, batches of {} sequences of {}, {}, AdamW at a learning rate of {}", model,
                     work.global_batch_size, work.sequence_length, precision_name(work.precision),
                     work.learning_rate);
}

std::string name_of_model(const TrainOptions& work) {
  return model_name(work.model);
}

std::string name_of_model(const CtrOptions& work) {
  return ctr_model_name(work.model);
}

std::string name_of_model(const GptTrainOptions& work) {
  return work.model;
}

}  // namespace

bool is_of_clicks(const ComparedWork& work) {
  return std::holds_alternative<CtrOptions>(work);
}

StrategyChoice& strategy_choice_of(ComparedWork& work) {
  return std::visit([](StrategyChoice& choice) -> StrategyChoice& { return choice; }, work);
}

std::string model_of(const ComparedWork& work) {
  return std::visit([](const auto& of_kind) { return name_of_model(of_kind); }, work);
}

std::string examples_of(const ComparedWork& work) {
  if (is_of_clicks(work)) return "rows";
  return std::holds_alternative<GptTrainOptions>(work) ? "tokens" : "images";
}

std::vector<Setting> settings_of(const ComparedWork& work) {
  if (const auto* clicks = std::get_if<CtrOptions>(&work)) return settings_of_clicks(*clicks);
  if (const auto* tokens = std::get_if<GptTrainOptions>(&work)) return gpt_settings(*tokens, {});
  return settings_of(std::get<TrainOptions>(work), {});
}

std::string work_summary(const ComparedWork& work) {
  return std::visit([](const auto& of_kind) { return summary_of(of_kind); }, work);
}

}  // namespace lockstep::apps
