#pragma once

#include <ATen/core/Generator.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/sharding/unit_options.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/sanitizer.h"

namespace lockstep {

/// How a training is divided. Stage 3 trains units.
struct ParityLayout {
  std::vector<int> workers{1};  ///< the replicas of each; one worker: threads of this process
  Mesh mesh{};                  ///< without axes: one axis "data"
  int stage = 0;
  bool overlaps = true;  ///< of units; see UnitOptions

  int replicas() const;
  std::string axis() const { return mesh.has("shard") ? "shard" : "data"; }
  std::string str() const;
};

/// For what a net is made. Workers of a test share one default random state, so initial values come from
/// `values`.
struct NetPlace {
  at::Generator values;
  const ReplicaContext* replica = nullptr;  ///< null: one device
  std::optional<UnitOptions> units{};       ///< none: no units
};

struct ParityNetImpl : torch::nn::Module {
  /// Returns the loss of each example.
  virtual torch::Tensor losses(const Example& batch) = 0;
};
using ParityNet = std::shared_ptr<ParityNetImpl>;

struct ParityTraining {
  std::function<ParityNet(NetPlace&)> make_net;
  Example data;
  /// Parameter i belongs to optimizer i modulo their number; "sgd", "adam", "adamw", "adagrad", "rmsprop" or
  /// one of the first three with "fused_" before it, whose oracle is LibTorch's.
  std::vector<std::string> optimizers{"adamw"};
  int64_t batch_size = 5;
  int micro_batches = 1;  ///< of each shard
  int steps = compared_steps(20);
  std::optional<double> clip_norm{};
  /// Changes the distinct parameters, which are shards in stage 3, before a step.
  std::function<void(std::vector<torch::Tensor> parameters, int step)> before_step{};
  int64_t bucket_bytes = 256;
  bool reverses_rows = false;  ///< on one device: has the examples of each micro-batch in reverse order
};

/// A training's result: the trained parameters and buffers, and the loss and the norms of each step.
struct ParityOutcome {
  std::map<std::string, torch::Tensor> tensors;
  std::vector<double> numbers;
};

/// Returns the rows of a batch that all replicas have in a micro-batch.
torch::Tensor rows_of_micro_batch(int64_t batch_size, int replicas, int micro_batch, int micro_batches);

/// The oracle: LibTorch's modules and optimizers on one device, with the whole of each micro-batch.
/// `replicas` says how micro-batches are cut.
ParityOutcome on_one_device(const ParityTraining& training, int replicas);

/// Returns the training's outcome on the layout's replicas. Throws what a replica or worker throws, and an
/// error if replicas have other bits of the same tensors.
ParityOutcome on_replicas(const ParityTraining& training, const ParityLayout& layout);

/// Returns the first thing that differs by more than `tolerance`, relative to the largest value or 1. Empty
/// if there is none.
std::string difference_of(const ParityOutcome& given, const ParityOutcome& expected,
                          double tolerance = 1e-12);

/// Returns the largest difference that rounding makes on one device, relative as above: that to the same
/// training with the examples of each micro-batch in reverse order. Nets may magnify it.
double rounding_of(const ParityTraining& training, int replicas);

/// Returns how the training on replicas differs from that on one device, or the error that it throws. Empty
/// if it does not differ.
std::string problem_of(const ParityTraining& training, const ParityLayout& layout, double tolerance = 1e-12);

}  // namespace lockstep
