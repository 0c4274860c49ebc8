#pragma once

#include <cstddef>

#include "lockstep/parameter_server/variables/update_rule.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace lockstep {

/// An optimizer whose steps parameter servers can make in its place. Users' own may be one.
class HasUpdateRule {
 public:
  virtual ~HasUpdateRule() = default;
  /// Of the parameter group of this index; all of its options but the learning rate.
  virtual UpdateRule update_rule(size_t group) const = 0;
};

/// The rule of a parameter group of an optimizer that HasUpdateRule, or of torch::optim::SGD, Adagrad, Adam
/// or AdamW. Throws InvalidArgument for any other, and for options that are another optimizer's.
UpdateRule update_rule_of(const torch::optim::Optimizer& optimizer, size_t group);

}  // namespace lockstep
