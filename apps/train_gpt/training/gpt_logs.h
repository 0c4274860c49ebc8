#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/training/callbacks/show_progress.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep::apps {

/// The sizes that turn a training's counts into those of a language model.
struct GptScale {
  int64_t sequence_length = 0;
  double flops_per_token = 0;
  double peak_flops = 0;              ///< of all replicas together, per second
  std::optional<double> best_loss{};  ///< lowest possible loss on the sequences to test on

  /// Returns the model FLOP utilization of a speed in sequences a second: the share of the peak speed that
  /// the model's operations take.
  double utilization(double sequences_per_second) const {
    return sequences_per_second * static_cast<double>(sequence_length) * flops_per_token / peak_flops;
  }
};

/// Adds to the logs of each epoch: perplexity and validation_perplexity, tokens_per_second,
/// model_flop_utilization, and if the lowest possible loss is known, above_entropy, the distance of the
/// validation loss to it. Must come before callbacks that read them.
class GptLogs : public Callback {
 public:
  explicit GptLogs(const GptScale& scale) : scale_(scale) {}
  void on_epoch_end(FitState& state) override;

 private:
  GptScale scale_;
};

/// Returns how train_gpt shows progress.
ShowProgressOptions gpt_progress_options(const GptScale& scale);

}  // namespace lockstep::apps
