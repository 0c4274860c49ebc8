#pragma once

#include <c10/util/ArrayRef.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/datasets/clicks/click_batch.h"

namespace lockstep {

struct GeneratedClicksOptions {
  int64_t count = 1'000'000;
  /// Of the rows. Another seed gives other rows of the same world: train on one, test on another.
  uint64_t seed = 0;
};

/// Click logs drawn at random, for programs that must train without any file, whose best possible predictions
/// are known: a row is a click with probability 1 / (1 + exp(-z)), and z is a sum of a bias, a weight for
/// each number's click_feature() and an effect of each category. As in real logs, few categories of a column
/// are frequent and many are rare (their rank is log-uniform), columns have from 8 to 2,000, and every value
/// may be missing. A row is drawn when it is asked for, from nothing but the seed and its index: every thread
/// and every run gets the same. See CollatedDataset for the interface.
class GeneratedClicks {
 public:
  /// Throws std::invalid_argument for a negative count.
  explicit GeneratedClicks(const GeneratedClicksOptions& options = {});

  std::optional<size_t> size() const { return static_cast<size_t>(options_.count); }
  ClickBatch get_batch(c10::ArrayRef<size_t> indices) const;

  ClickRow row(size_t index) const;
  /// Of a click: the best prediction for rows of this index, and the scores with the best AUC that there can
  /// be.
  double probability(size_t index) const;

 private:
  struct Drawn {
    ClickRow row;
    double probability = 0;
  };
  Drawn draw(size_t index) const;

  GeneratedClicksOptions options_;
  std::array<double, kClickNumbers> weights_{};
  std::array<std::vector<double>, kClickCategories>
      effects_;  // of a column's categories; 0: of a missing one
};

}  // namespace lockstep
