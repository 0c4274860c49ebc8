#pragma once

#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>

namespace lockstep {

/// Counts the sharded units of one replica whose parameters are whole at the same time. Use it in the
/// replica's thread, or between runs.
///
/// Example:
///
///     const auto& counts = gathered_units(*model).counts();
///     std::cout << counts.most_units << " units, " << counts.most_bytes << " bytes at most\n";
class GatheredUnits {
 public:
  struct Counts {
    int64_t units = 0;            ///< units that are whole now
    int64_t most_units = 0;       ///< most that were at the same time
    int64_t bytes = 0;            ///< memory of their whole parameters, with padding, divided by
                                  ///< the ranks that share it; see ShardedModule::num_sharing()
    int64_t most_bytes = 0;       ///< most at the same time
    int64_t gathers = 0;          ///< how often a unit was gathered
    int64_t reduce_scatters = 0;  ///< how often a unit's gradients were summed
  };

  const Counts& counts() const { return counts_; }
  /// Lets the numbers of the most, gathers and reduce-scatters begin anew.
  void restart() { counts_ = {counts_.units, counts_.units, counts_.bytes, counts_.bytes, 0, 0}; }

  void add(int64_t bytes) {
    ++counts_.gathers;
    counts_.most_units = std::max(counts_.most_units, ++counts_.units);
    counts_.most_bytes = std::max(counts_.most_bytes, counts_.bytes += bytes);
  }
  void remove(int64_t bytes) {
    --counts_.units;
    counts_.bytes -= bytes;
  }
  void add_reduce_scatter() { ++counts_.reduce_scatters; }

 private:
  Counts counts_;
};

/// Returns the counter of the replica to which the sharded units in `model` belong; scope() binds them to it.
/// Throws InvalidArgument if there are no units in it, or before they belong to a replica.
///
/// Example:
///
///     gathered_units(*model).restart();
///     model->forward(images).sum().backward();
///     std::cout << gathered_units(*model).counts().most_bytes << " bytes of gathered parameters at most\n";
GatheredUnits& gathered_units(const torch::nn::Module& model);

}  // namespace lockstep
