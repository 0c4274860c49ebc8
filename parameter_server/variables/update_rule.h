#pragma once

#include <variant>

namespace lockstep {

/// Stochastic gradient descent, as in torch::optim::SGD.
struct SgdRule {
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;

  bool operator==(const SgdRule&) const = default;
};

/// Adagrad (Duchi, Hazan and Singer, 2011), as in torch::optim::Adagrad.
struct AdagradRule {
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;

  bool operator==(const AdagradRule&) const = default;
};

/// Adam (Kingma and Ba, 2014), as in torch::optim::Adam; AdamW if `is_decoupled` is true.
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

/// How a parameter server updates a shard with gradients. The learning rate is given separately.
using UpdateRule = std::variant<SgdRule, AdagradRule, AdamRule>;

}  // namespace lockstep
