#pragma once

#include <cstddef>

#include "lockstep/parameter_server/variables/update_rule.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace lockstep {

/// Base of your own optimizers whose steps parameter servers can take over.
///
/// Example:
///
///     class OwnSgd : public torch::optim::SGD, public HasUpdateRule {
///      public:
///       using SGD::SGD;
///       UpdateRule update_rule(size_t) const override { return SgdRule{.momentum = 0.9}; }
///     };
class HasUpdateRule {
 public:
  virtual ~HasUpdateRule() = default;
  /// Returns the rule of the parameter group with this index: all of its options except the learning rate.
  virtual UpdateRule update_rule(size_t group) const = 0;
};

/// Returns the rule of a parameter group of torch::optim::SGD, Adagrad, Adam or AdamW, or of an optimizer
/// that derives from HasUpdateRule. Throws InvalidArgument for any other optimizer, and for options that
/// belong to another optimizer.
UpdateRule update_rule_of(const torch::optim::Optimizer& optimizer, size_t group);

}  // namespace lockstep
