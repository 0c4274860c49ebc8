#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/gradients/flat_parameters.h"
#include "lockstep/runtime/gradients/gradient_reducer.h"
#include "lockstep/runtime/gradients/slice_layout.h"
#include "lockstep/runtime/graphs/fingerprint.h"

namespace lockstep {

/// Bytes that one replica holds for an optimizer's parameters and gradients, padding included.
struct ShardedMemory {
  int64_t parameters = 0;    ///< whole parameters that are divided
  int64_t buckets = 0;       ///< buckets of gradients now
  int64_t peak_buckets = 0;  ///< the most that buckets had at once
  int64_t sums = 0;          ///< this rank's sums, if they are not in the buckets
};

/// One replica's part in the state of an optimizer that all ranks share. Parameters stay whole. The optimizer
/// steps slices of them, one-dimensional views that stay the same from step to step, and its state is keyed
/// by these. Parameters that are shards already (see ShardedParameter) are stepped as they are. Use it from
/// its replica's thread only.
class ShardedParameters {
 public:
  /// `reducer` has sharded sums of the optimizer's parameters. The ranks of `parts` own different parts.
  /// Divides the state that the optimizer has already. Throws as FlatParameters and slice_of_state() do.
  ShardedParameters(torch::optim::Optimizer& optimizer, GradientReducer& reducer, ReplicaBackends parts,
                    std::function<std::string(size_t)> name_of);
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  /// Call it at the start of a run. Moves parameters whose memory was replaced back into flat memory, adds
  /// slices of parameters that require a gradient by now, and divides state that was loaded for whole
  /// parameters. Throws InvalidArgument naming a parameter whose dtype, device or shape has changed.
  void prepare();

  /// While one is alive, the optimizer's groups hold this rank's slices, with the sums as their gradients,
  /// instead of whole parameters. Construct it after GradientReducer::finish().
  class Step {
   public:
    explicit Step(ShardedParameters& parameters);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    ShardedParameters& parameters_;
  };

  /// Brings the ranks' parts of the parameters together after a step; see FlatParameters::gather().
  void gather() const { flat_.gather(*parts_.device); }

  /// Adds the slices and their state, if the optimizer's step can be captured.
  void describe(Fingerprint& fingerprint);

  /// Returns the slices that this rank owns, by bucket, then by position. Grows in prepare() only.
  const std::vector<ParameterSlice>& slices() const { return slices_; }
  /// Returns the slice's elements, by its number.
  const at::Tensor& tensor(size_t slice) const { return tensors_[slice]; }
  /// Returns the numbers of the optimizer's parameters that are shards already, in ascending order.
  std::vector<size_t> shards() const;
  /// Returns the optimizer's state of a slice, or null if there is none yet.
  torch::optim::OptimizerParamState* state(size_t slice) const;
  /// Replaces the state of a slice; null removes it. Call it between runs.
  void set_state(size_t slice, std::unique_ptr<torch::optim::OptimizerParamState> state);
  ShardedMemory memory() const;

 private:
  void add_slices();
  void divide_states();
  void swap();

  torch::optim::Optimizer& optimizer_;
  GradientReducer& reducer_;
  const ReplicaBackends parts_;
  FlatParameters flat_;
  std::vector<size_t> group_of_;  // for each parameter
  size_t num_buckets_ = 0;        // of those that have slices
  std::vector<ParameterSlice> slices_;
  std::vector<at::Tensor> tensors_;             // for each slice
  std::vector<at::Tensor> gradients_;           // for each slice: its sum
  std::vector<std::vector<at::Tensor>> other_;  // for each group: the parameters that it does not hold now
};

}  // namespace lockstep
