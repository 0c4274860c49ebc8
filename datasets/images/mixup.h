#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <torch/data/example.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Mixup (Zhang, Cisse, Dauphin and Lopez-Paz, mixup: Beyond Empirical Risk Minimization, 2018): each image
/// becomes the weighted mean of itself and a partner, and its target the weighted mean of both targets. The
/// partner is any example of the dataset, drawn for each example by (seed, epoch, index) alone, so that any
/// number of replicas mixes alike. Thread-safe.
///
/// Example:
///
///     const Mixup mixup{.alpha = 0.2, .num_classes = 10, .seed = 1};
///     const auto partners = images.get_batch(mixup.partners(indices, epoch, *images.size()));
///     const auto mixed = mixup.mix(images.get_batch(indices), partners, mixup.weights(indices, epoch));
struct Mixup {
  /// Weights are of the distribution Beta(alpha, alpha): 1e-6 to 1e6. 0 turns mixup off.
  double alpha = 0;
  /// Number of classes that targets count.
  int64_t num_classes = 0;
  uint64_t seed = 0;

  /// Throws std::invalid_argument if alpha is another number, or if mixup is on and num_classes is below 1.
  void check() const;
  bool is_on() const { return alpha > 0; }
  std::string describe() const;

  /// Returns the index of each example's partner, which may be the example itself. Throws
  /// std::invalid_argument if the dataset has no examples.
  std::vector<size_t> partners(c10::ArrayRef<size_t> indices, int64_t epoch, size_t dataset_size) const;
  /// Returns the weight of each example, from 0 to 1: float32 [n] on the CPU. Its partner has the rest.
  at::Tensor weights(c10::ArrayRef<size_t> indices, int64_t epoch) const;
  /// Returns the mixed examples. Data is floating-point [n, ...] and keeps its dtype; targets are int64
  /// classes [n]; the result's are probabilities [n, num_classes], float32, whose largest is the heavier
  /// target's. All are on one device. On the CPU, float32 images are mixed in as many threads as ATen's
  /// operators use. Throws std::invalid_argument for other shapes, and on the CPU for targets that are no
  /// classes.
  torch::data::Example<> mix(const torch::data::Example<>& examples, const torch::data::Example<>& partners,
                             const at::Tensor& weights) const;
};

}  // namespace lockstep
