#pragma once

namespace lockstep {

/// Second base class, next to torch::optim::Optimizer, of optimizers whose step computes each element of a
/// parameter from that element, its gradient, its state and the group's options alone. Each replica can then
/// step a part of the parameters and keep the state of that part only (sharding). torch::optim's SGD, Adam,
/// AdamW, Adagrad and RMSprop are known to do so, and Lockstep's fused optimizers derive from this class.
///
/// A step must work on any dense one-dimensional parameters, take them from param_groups() each time, skip
/// those without a gradient, and find their state in state() by the parameter, as torch::optim's do.
///
/// Example:
///
///     struct SignSgd : torch::optim::SGD, ElementwiseStep {
///       using SGD::SGD;
///       torch::Tensor step(LossClosure closure = nullptr) override {
///         const torch::NoGradGuard no_grad;
///         for (auto& parameter : param_groups()[0].params()) {
///           if (parameter.grad().defined()) parameter.sub_(parameter.grad().sign(), 0.01);
///         }
///         return {};
///       }
///     };
class ElementwiseStep {
 public:
  virtual ~ElementwiseStep() = default;

  /// Override it to return false in a class that derives from an elementwise optimizer and is none, for
  /// example because its rate depends on the norm of a whole parameter.
  virtual bool is_elementwise() const { return true; }
};

}  // namespace lockstep
