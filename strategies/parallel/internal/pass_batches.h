#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The batches that go through a pipeline one after another, each cut into micro-batches, which are numbered
/// from the first batch on.
class PassBatches {
 public:
  /// Cuts each input into as many micro-batches as `counts` says, whose sizes differ by at most 1. `target`
  /// is that of the only input, or undefined. Batches of a stream have numbers, from `first_number` on.
  PassBatches(std::vector<torch::Tensor> inputs, const std::vector<int>& counts, torch::Tensor target = {},
              std::optional<int64_t> first_number = std::nullopt);

  bool is_stream() const { return first_number_.has_value(); }
  int num_micro_batches() const { return static_cast<int>(places_.size()); }
  size_t batch_of(int micro_batch) const { return place(micro_batch).batch; }
  /// Whether it is the last micro-batch of its batch.
  bool ends_batch(int micro_batch) const;
  int64_t num_examples(int micro_batch) const { return place(micro_batch).length; }

  /// Returns the input of the batch to which the micro-batch belongs.
  const torch::Tensor& whole_input(int micro_batch) const { return inputs_[batch_of(micro_batch)]; }
  /// Returns the micro-batch's rows of its input.
  torch::Tensor input(int micro_batch) const;
  /// Returns its rows of the target; undefined without a target.
  torch::Tensor target(int micro_batch) const;

  /// Returns such as "micro-batch 1 of batch 3", or "micro-batch 1" without a stream.
  std::string describe(int micro_batch) const;

 private:
  struct Place {
    size_t batch = 0;
    int number = 0;     ///< in its batch
    int64_t begin = 0;  ///< rows of the batch
    int64_t length = 0;
  };

  const Place& place(int micro_batch) const { return places_[static_cast<size_t>(micro_batch)]; }

  std::vector<torch::Tensor> inputs_;
  torch::Tensor target_;
  std::optional<int64_t> first_number_;
  std::vector<Place> places_;  // of the micro-batches
};

}  // namespace lockstep
