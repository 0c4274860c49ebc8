#include "lockstep/training/optimizers/learning_rate.h"

#include <cmath>
#include <numbers>
#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

double cosine_decay(int64_t step, int64_t num_steps) {
  if (step < 0)
    throw InvalidArgument("[cosine_decay] expected a step from 0, but got " + std::to_string(step));
  if (num_steps < 1) {
    throw InvalidArgument("[cosine_decay] expected 1 step or more in all, but got " +
                          std::to_string(num_steps));
  }
  if (step >= num_steps) return 0;
  const double done = static_cast<double>(step) / static_cast<double>(num_steps);
  return 0.5 * (1 + std::cos(std::numbers::pi * done));
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double learning_rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate);
}

}  // namespace lockstep
