#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// Drawn digits, 28x28 grey in 10 classes, for programs that must train without any file. Example i shows the
/// digit i % 10. An image is drawn when it is asked for, some 20 us each, from nothing but the seed and its
/// index: every thread and every run gets the same. See CollatedDataset for the interface.
class GeneratedDigits {
 public:
  /// Throws std::invalid_argument for options out of range.
  explicit GeneratedDigits(const GeneratedDigitsOptions& options = {});

  std::optional<size_t> size() const { return count_; }
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
  torch::data::Example<> device_transform(torch::data::Example<> batch) const;

 private:
  size_t count_;
  uint64_t seed_;
  ImageTransform transform_;
};

}  // namespace lockstep
