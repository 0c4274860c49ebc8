#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// Elements of a tensor that this process has to give: consecutive in the order of the tensor's memory, or a
/// box of neighbours.
struct TensorPiece {
  int64_t offset = 0;      ///< Place of the first one among the tensor's elements, in the order of memory.
  torch::Tensor elements;  ///< One-dimensional, or of the box's sizes.
  /// The place of the box's first element along each dimension. Empty: no box.
  std::vector<int64_t> begin = {};
};

/// Returns a stand-in for a tensor of which the replicas hold pieces: of the device "meta", with the sizes,
/// strides and dtype of `like`, but without memory. The pieces of all processes make up the tensor. It takes
/// the tensor's place in a StateValue until WholeTensors puts the tensor together.
torch::Tensor divided_tensor(const torch::Tensor& like, std::vector<TensorPiece> pieces);

/// Returns this process's pieces if the tensor is such a stand-in, else null. Aliases of a stand-in, as made
/// by detach(), give the same address. Valid as long as one of them.
const std::vector<TensorPiece>* pieces_of(const torch::Tensor& tensor);

}  // namespace lockstep
