#include "lockstep/models/parts/internal/wrap_part.h"

#include <stdexcept>
#include <utility>

namespace lockstep {

PlacedPart wrap_part(const PartWrapper& wrap, const ModelPart& part, PartFunction function) {
  if (!wrap) return {part.module, std::move(function)};
  WrappedPart wrapped = wrap(part);
  if (wrapped.module == nullptr) {
    throw std::invalid_argument("[wrap] expected a module in the place of '" + part.name +
                                "', but got an empty one");
  }
  if (!wrapped.call) return {wrapped.module, std::move(function)};
  return {wrapped.module, [call = std::move(wrapped.call), function = std::move(function)](
                              const torch::Tensor& x) { return call(function, x); }};
}

}  // namespace lockstep
