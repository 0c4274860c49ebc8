#include "lockstep/apps/train_gpt/training/gpt_logs.h"

#include <cmath>

namespace lockstep::apps {

void GptLogs::on_epoch_end(FitState& state) {
  Logs& logs = state.logs;
  if (const auto loss = logs.find("loss")) logs.set("perplexity", std::exp(*loss));
  if (const auto loss = logs.find("validation_loss")) {
    logs.set("validation_perplexity", std::exp(*loss));
    if (scale_.best_loss) logs.set("above_entropy", *loss - *scale_.best_loss);
  }
  if (const auto speed = logs.find("examples_per_second")) {
    logs.set("tokens_per_second", *speed * static_cast<double>(scale_.sequence_length));
    logs.set("model_flop_utilization", scale_.utilization(*speed));
  }
}

ShowProgressOptions gpt_progress_options(const GptScale& scale) {
  const auto add_utilization = [scale](const FitState& state, Logs& shown) {
    if (state.seconds > 0)
      shown.set("model_flop_utilization",
                scale.utilization(static_cast<double>(state.examples) / state.seconds));
  };
  return {.text = {.unit = "tokens",
                   .units_per_example = scale.sequence_length,
                   .validation = "test",
                   .names = {"loss", "validation_loss", "validation_perplexity", "above_entropy",
                             "examples_per_second", "model_flop_utilization"}},
          .bar_names = {"loss"},
          .add_values = add_utilization,
          .interruption = false};  // the program says so itself
}

}  // namespace lockstep::apps
