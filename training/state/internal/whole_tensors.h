#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/state/internal/divided_tensor.h"

namespace lockstep {

/// Puts divided tensors together, a few at a time, from the pieces of all workers. At any time, a worker has
/// the memory of one whole tensor or of about 4 MiB of smaller ones, and of the pieces that these are made
/// of. All workers construct one with as many tensors of the same sizes, in the same order, and finish it.
class WholeTensors {
 public:
  /// `divided` lists the stand-ins, and `wanted` those whose values this worker will ask for.
  WholeTensors(Strategy& strategy, std::vector<torch::Tensor> divided,
               const std::vector<torch::Tensor>& wanted);

  /// Returns the values of a wanted stand-in on the CPU, and any other tensor as it is. Ask for stand-ins in
  /// the order of the list, for each once; some may be left out. May wait for all workers. Throws
  /// InvalidArgument if the pieces do not hold each element of the tensor once.
  torch::Tensor operator()(const torch::Tensor& tensor);
  /// Exchanges the tensors that are left, for the sake of the other workers.
  void finish();

 private:
  void exchange_next();
  void add_piece(size_t number, const TensorPiece& piece);

  Strategy& strategy_;
  std::vector<torch::Tensor> divided_;
  std::unordered_set<const void*> wanted_;  // by their pieces, as below
  size_t num_exchanged_ = 0;
  /// Tensors of the last exchange by their stand-ins' pieces, each with the number of its elements that are
  /// there.
  std::unordered_map<const void*, std::pair<torch::Tensor, int64_t>> whole_;
};

/// Returns the stand-ins in a state, each once, in its order.
std::vector<torch::Tensor> divided_tensors_in(const StateValue& state);

/// Returns `own` with whole tensors on the CPU in the place of stand-ins. All stand-ins of `own` are in
/// `all`, in the same order. A collective if `all`, which has the same ones on all workers, has any.
StateValue::Dict with_whole_tensors(Strategy& strategy, const StateValue::Dict& all,
                                    const StateValue::Dict& own);

/// Calls `write` with a function that puts together the stand-ins in `own`, on a worker for which it is not
/// null, and takes part in the other workers' exchanges whether or not it throws. Otherwise as
/// with_whole_tensors().
void write_whole_tensors(Strategy& strategy, const StateValue::Dict& all, const StateValue::Dict& own,
                         const std::function<void(WholeTensors&)>& write);

}  // namespace lockstep
