#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/rank_names.h"
#include "lockstep/runtime/collectives/reduce_op.h"

namespace lockstep {

// Descriptions of collectives, the checks that all backends share, and the messages for calls that do not
// match between ranks.

/// Returns the operation with the dtypes and shapes of its tensors. Ranks whose descriptions differ have
/// called different collectives.
std::string describe(const std::string& operation, const std::vector<at::Tensor>& tensors);
/// The same for the parts that an operation deals with, one for each rank. If all parts are alike, only one
/// is described.
std::string describe_parts(const std::string& operation, const std::vector<at::Tensor>& parts);
/// Returns the backends' name of a reduction.
c10d::ReduceOp reduction_of(ReduceOp op);
/// Returns the operation's name, such as `sum`. Throws InvalidArgument unless it is a sum, mean, product,
/// minimum or maximum.
const char* name_of(const c10d::ReduceOp& op);

// These begin their errors with `operation`.
/// Throws InvalidArgument for a mean of integers, which would be truncated.
void check_mean(const char* operation, const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors);
/// Throws InvalidArgument for a minimum or maximum of complex numbers, which have no order.
void check_extreme(const char* operation, const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors);
/// Throws InvalidArgument for a product of complex numbers, which backends that treat them as pairs of real
/// numbers cannot compute.
void check_product(const char* operation, const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors);
/// Throws InvalidArgument if `source` is not a rank.
void check_source(int64_t source, int size);
/// Throws InvalidArgument if `outputs` is not one list with one output per rank, or if this rank's output
/// differs from its input in shape or dtype.
void check_all_gather(const std::vector<std::vector<at::Tensor>>& outputs,
                      const std::vector<at::Tensor>& inputs, int rank, int size);
/// Throws InvalidArgument if `outputs` is not one tensor, `inputs` is not one list with one input per rank,
/// or the output differs from this rank's input in shape or dtype.
void check_reduce_scatter(const std::vector<at::Tensor>& outputs,
                          const std::vector<std::vector<at::Tensor>>& inputs, int rank, int size);
/// Throws InvalidArgument if there is not one output and one input per rank, all of one dtype, or if this
/// rank's own two differ in shape.
void check_all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, int rank,
                      int size);

/// Throws InvalidArgument unless both tensors are contiguous, have one shape and dtype, and one row for each
/// rank, and no sizes are given.
void check_equal_all_to_all(const at::Tensor& output, const at::Tensor& input,
                            const std::vector<int64_t>& output_sizes, const std::vector<int64_t>& input_sizes,
                            int size);

/// A collective as the ranks see it: its position in the order, and what the first rank to arrive called.
struct CollectiveCall {
  uint64_t sequence = 0;
  int first_replica = -1;  ///< The id of that rank's replica.
  const std::string& description;
};
/// Returns the message that `replica` called something else at the same position.
std::string differing_calls(const CollectiveCall& call, int replica, const std::string& description);
/// Returns the message that the `missing` replicas (see missing_ranks()) returned from the run without
/// joining the call that the first one has joined.
std::string returned_without_joining(const CollectiveCall& call, const std::string& missing);
std::string timed_out(const CollectiveCall& call, std::chrono::duration<double> after,
                      const std::string& missing);

/// Returns the ids of the replicas of the ranks that are not `here`, separated by commas. `here` begins with
/// `first_rank`.
std::string missing_ranks(const std::vector<char>& here, int first_rank = 0, const RankNames& names = {});

}  // namespace lockstep
