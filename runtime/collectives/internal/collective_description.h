#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// What collectives are called, what every backend refuses of them alike, and what is said where the ranks'
// calls do not fit together.

/// The operation with the dtypes and shapes of its tensors. Ranks whose descriptions differ have called
/// different collectives.
std::string describe(const std::string& operation, const std::vector<at::Tensor>& tensors);
/// Such as `sum`. Throws InvalidArgument for another reduction than sum, mean, product, minimum and maximum.
const char* name_of(const c10d::ReduceOp& op);

/// Throws InvalidArgument for a mean of integers, which would be cut off.
void check_mean(const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors);
/// Throws InvalidArgument for a minimum or maximum of complex numbers, which have no order.
void check_extreme(const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors);
/// Throws InvalidArgument for a product of complex numbers, by a backend that adds up pairs of real ones.
void check_product(const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors);
/// Throws InvalidArgument for a broadcast from a rank that is none.
void check_source(int64_t source, int size);
/// Throws InvalidArgument where `outputs` is not one list with an output for each rank, or this rank's output
/// differs from its input in shape or dtype.
void check_all_gather(const std::vector<std::vector<at::Tensor>>& outputs,
                      const std::vector<at::Tensor>& inputs, int rank, int size);

/// A collective as the ranks see it: what the first one that came called, and at which place in the order.
struct CollectiveCall {
  uint64_t sequence = 0;
  int first_rank = -1;
  const std::string& description;
};
/// `rank` called something else at the same place.
std::string differing_calls(const CollectiveCall& call, int rank, const std::string& description);
/// `rank` returned from the run, and the first rank has joined the call.
std::string returned_without_joining(const CollectiveCall& call, int rank);
/// All ranks have returned, and the call waits for `missing`.
std::string not_joined(const CollectiveCall& call, const std::string& missing);
std::string timed_out(const CollectiveCall& call, std::chrono::duration<double> after,
                      const std::string& missing);

/// Numbers of the ranks that are not `here`, which begins with `first_rank`, with commas.
std::string missing_ranks(const std::vector<char>& here, int first_rank = 0);

}  // namespace lockstep
