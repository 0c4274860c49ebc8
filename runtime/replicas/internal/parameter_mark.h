#pragma once

#include <c10/core/TensorImpl.h>

#include "lockstep/runtime/replicas/sharded_parameter.h"

namespace lockstep {

/// Data that goes with a tensor and with the aliases that detach() makes of it, in the place that LibTorch
/// has for such data. A tensor has one mark.
class ParameterMark : public c10::BackendMeta {
 public:
  /// Returns what the tensor is a part of, or null if it is whole.
  virtual const ShardedParameter* shard() const = 0;
};

}  // namespace lockstep
