#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>

namespace lockstep {

/// Base of backends with which ranks of one process can gather into one tensor that they share.
///
/// Example:
///
///     auto* sharing = dynamic_cast<SharesGathers*>(backend.get());
///     const auto gather = sharing->gather_shared(part);  // in the thread of each rank
///     gather.work->wait();
///     const at::Tensor whole = *gather.whole;  // the same memory on all ranks of the process
class SharesGathers {
 public:
  virtual ~SharesGathers() = default;

  struct Gather {
    c10::intrusive_ptr<c10d::Work> work;
    /// The parts of all ranks along a first dimension. Undefined before the work is done. It is for reading
    /// only. Its memory lasts as long as a rank has it or a view of it.
    std::shared_ptr<const at::Tensor> whole;
  };

  /// Returns how many ranks of this process share what they gather.
  virtual int num_sharing() const = 0;
  /// Begins to gather the ranks' parts, dense CPU tensors of the same dtype and shape, and does not block.
  /// Matches the other ranks' gather_shared() and _allgather_base(), and allocates memory only once all ranks
  /// of the process have called it. Throws InvalidArgument for a tensor on another device, and otherwise what
  /// _allgather_base() throws.
  virtual Gather gather_shared(const at::Tensor& part) = 0;
};

}  // namespace lockstep
