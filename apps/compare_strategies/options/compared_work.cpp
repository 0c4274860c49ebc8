#include "lockstep/apps/compare_strategies/options/compared_work.h"

#include <fmt/format.h>

#include "lockstep/apps/train_images/options/train_settings.h"

namespace lockstep::apps {
namespace {

std::vector<Setting> settings_of_clicks(const CtrOptions& work) {
  return {{"data", work.data, {}},
          {"train-rows", work.train_rows, {}},
          {"skip-bad", work.skip_bad, {}},
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

}  // namespace

bool is_of_clicks(const ComparedWork& work) {
  return std::holds_alternative<CtrOptions>(work);
}

StrategyChoice& strategy_choice_of(ComparedWork& work) {
  return std::visit([](StrategyChoice& choice) -> StrategyChoice& { return choice; }, work);
}

std::string examples_of(const ComparedWork& work) {
  return is_of_clicks(work) ? "rows" : "images";
}

std::vector<Setting> settings_of(const ComparedWork& work) {
  if (const auto* clicks = std::get_if<CtrOptions>(&work)) return settings_of_clicks(*clicks);
  return settings_of(std::get<TrainOptions>(work), {});
}

std::string work_summary(const ComparedWork& work) {
  return std::visit([](const auto& of_kind) { return summary_of(of_kind); }, work);
}

}  // namespace lockstep::apps
