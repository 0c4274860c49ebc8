#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/images/image_transform.h"

namespace lockstep {

struct GeneratedDigitsOptions {
  int64_t count = 60000;
  /// Another seed gives other images: train on one, test on another.
  uint64_t seed = 0;
  /// See ImageTransform.
  int64_t image_size = 0;
  int64_t channels = 1;
  std::vector<double> mean = {0.0};
  std::vector<double> stddev = {1.0};
};

/// Generated grey images of digits, 28x28 in 10 classes, for programs that must train without any file.
/// Example i shows the digit i % 10. Each image is drawn when it is needed, in about 20 us, from the seed and
/// its index alone, so every thread and every run gets the same. The interface is that of CollatedDataset.
///
/// Example:
///
///     GeneratedDigits digits({.count = 1000, .seed = 2});
///     auto batches = strategy.distribute_dataset(digits, {.global_batch_size = 100});
class GeneratedDigits {
 public:
  /// Throws std::invalid_argument if an option is out of range.
  explicit GeneratedDigits(const GeneratedDigitsOptions& options = {});

  std::optional<size_t> size() const { return count_; }
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
  torch::data::Example<> device_transform(torch::data::Example<> batch) const;
  std::string identity() const { return "generated digits of seed " + std::to_string(seed_); }

 private:
  size_t count_;
  uint64_t seed_;
  ImageTransform transform_;
};

}  // namespace lockstep
