#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/runtime/gradients/gradient_buckets.h"

namespace lockstep {

/// The flat memory of one replica's parameters, laid out like their gradients' buckets, so that parts of a
/// bucket can be gathered in place. Use it from its replica's thread only.
class FlatParameters {
 public:
  /// `name_of` returns a parameter's name for errors. Throws InvalidArgument naming two parameters if they
  /// share memory.
  FlatParameters(std::vector<at::Tensor> parameters, std::function<std::string(size_t)> name_of);

  /// Makes all parameters with a slot in `buckets`, which have parts, views of flat memory, with the same
  /// values: those of buckets that are new, and those whose memory was replaced since, for example because
  /// they were loaded from a file. Throws InvalidArgument naming a parameter that has changed its dtype,
  /// device or shape.
  void adopt(const GradientBuckets& buckets);
  size_t size() const { return flat_.size(); }
  const at::Tensor& flat(size_t bucket) const { return flat_[bucket]; }

  /// Gathers all buckets, two at a time: each rank of `backend` gives its own part. Blocks until they are
  /// there; on GPUs the host does not wait. Counts as a write to the parameters for autograd. Throws what the
  /// backend's Work::wait() throws.
  void gather(c10d::Backend& backend) const;
  int64_t bytes() const;

 private:
  void check_overlaps() const;
  void add_bucket(const GradientBuckets& buckets, size_t bucket);

  std::vector<at::Tensor> parameters_;
  const std::function<std::string(size_t)> name_of_;
  std::vector<at::Tensor> flat_;   // one per bucket
  std::vector<at::Tensor> homes_;  // for each parameter: its view of flat memory, or undefined
};

/// Throws InvalidArgument for a parameter that has changed its dtype, device or shape.
[[noreturn]] void refuse_changed_parameter(const std::string& name);

}  // namespace lockstep
