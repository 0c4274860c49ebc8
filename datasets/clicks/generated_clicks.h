#pragma once

#include <c10/util/ArrayRef.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/clicks/click_batch.h"

namespace lockstep {

struct GeneratedClicksOptions {
  int64_t count = 1'000'000;
  /// Seed of the rows. Another seed gives other rows of the same distribution: train on one, test on another.
  uint64_t seed = 0;
};

/// Random click logs for programs that must train without any file. The best possible predictions are known:
/// a row is a click with probability 1 / (1 + exp(-z)), where z is the sum of a bias, a weight for each
/// number's click_feature() and an effect of each category. As in real logs, few categories of a column are
/// frequent and many are rare (their rank is log-uniform), columns have 8 to 2,000 categories, and every
/// value may be missing. A row is drawn when it is needed, from the seed and its index alone, so every thread
/// and every run gets the same. An indexed dataset: it has size() and get_batch(), which is thread-safe.
///
/// Example:
///
///     GeneratedClicks clicks({.count = 100'000, .seed = 1});
///     auto batches = strategy.distribute_dataset(clicks, {.global_batch_size = 256, .shuffle_seed = 1});
class GeneratedClicks {
 public:
  /// Throws std::invalid_argument if the count is negative.
  explicit GeneratedClicks(const GeneratedClicksOptions& options = {});

  std::optional<size_t> size() const { return static_cast<size_t>(options_.count); }
  /// Throws std::invalid_argument if an index is not below size().
  ClickBatch get_batch(c10::ArrayRef<size_t> indices) const;

  std::string identity() const { return "generated clicks of seed " + std::to_string(options_.seed); }

  ClickRow row(size_t index) const;
  /// Returns the probability that the row is a click: the best possible prediction, and the score with the
  /// best possible AUC.
  double probability(size_t index) const;

 private:
  struct Drawn {
    ClickRow row;
    double probability = 0;
  };
  Drawn draw(size_t index) const;

  GeneratedClicksOptions options_;
  std::array<double, kClickNumbers> weights_{};
  std::array<std::vector<double>, kClickCategories> effects_;  // by column and category; 0: missing
};

}  // namespace lockstep
