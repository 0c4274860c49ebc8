#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/apps/train_gpt/data/gpt_data.h"
#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep::apps {

/// Losses of other predictors on the sequences to test on, in nats a token.
struct Baselines {
  /// The lowest possible expected loss of a generated language; none if the data was read.
  std::optional<double> entropy;
  /// The loss of the best predictor on the very sequences to test on. It differs from the entropy by chance,
  /// so that a model's distance to it has less noise.
  std::optional<double> best;
  std::optional<double> bigram;
  std::optional<double> five_gram;
};

/// Computes them. The n-gram models count the first sequences to train on, as many tokens as `most_tokens` or
/// 2 million. Blocks for up to a few seconds.
Baselines measure_baselines(const GptData& data, int64_t most_tokens);

/// Returns them for a report.
std::vector<ReferenceLoss> reference_losses(const Baselines& baselines);

}  // namespace lockstep::apps
