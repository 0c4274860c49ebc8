#pragma once

#include <variant>

namespace lockstep {

/// Stochastic gradient descent, as torch::optim::SGD.
struct SgdRule {
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;

  bool operator==(const SgdRule&) const = default;
};

/// Adagrad (Duchi, Hazan and Singer, 2011), as torch::optim::Adagrad.
struct AdagradRule {
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;

  bool operator==(const AdagradRule&) const = default;
};

/// Adam (Kingma and Ba, 2014), as torch::optim::Adam, and with `is_decoupled` AdamW.
struct AdamRule {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool is_decoupled = false;
  bool amsgrad = false;
  bool maximize = false;

  bool operator==(const AdamRule&) const = default;
};

/// What a parameter server does with the gradients of a shard, beside their learning rate.
using UpdateRule = std::variant<SgdRule, AdagradRule, AdamRule>;

}  // namespace lockstep
