#pragma once

#include <memory>

#include "lockstep/models/parts/model_parts.h"

namespace lockstep {

/// A part in its model.
struct PlacedPart {
  std::shared_ptr<torch::nn::Module> module;  ///< to register under the part's name
  PartFunction function;                      ///< calls the part
};

/// Has `wrap`, which may be empty, wrap a part that computes `function`. Throws std::invalid_argument if it
/// returns no module.
PlacedPart wrap_part(const PartWrapper& wrap, const ModelPart& part, PartFunction function);

}  // namespace lockstep
