#include "lockstep/parameter_server/variables/optimizer_rule.h"

#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>

#include <typeinfo>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

template <typename Options>
UpdateRule adam_rule(const Options& options, bool is_decoupled) {
  const auto& [beta1, beta2] = options.betas();
  return AdamRule{.beta1 = beta1,
                  .beta2 = beta2,
                  .eps = options.eps(),
                  .weight_decay = options.weight_decay(),
                  .is_decoupled = is_decoupled,
                  .amsgrad = options.amsgrad()};
}

}  // namespace

UpdateRule update_rule_of(const torch::optim::Optimizer& optimizer, size_t group) {
  if (const auto* own = dynamic_cast<const HasUpdateRule*>(&optimizer)) return own->update_rule(group);
  // Each optimizer class refuses groups with another class's options.
  const auto& options = optimizer.param_groups().at(group).options();
  if (const auto* sgd = dynamic_cast<const torch::optim::SGDOptions*>(&options))
    return SgdRule{.momentum = sgd->momentum(),
                   .dampening = sgd->dampening(),
                   .weight_decay = sgd->weight_decay(),
                   .nesterov = sgd->nesterov()};
  if (const auto* adagrad = dynamic_cast<const torch::optim::AdagradOptions*>(&options))
    return AdagradRule{.lr_decay = adagrad->lr_decay(),
                       .weight_decay = adagrad->weight_decay(),
                       .initial_accumulator_value = adagrad->initial_accumulator_value(),
                       .eps = adagrad->eps()};
  if (const auto* adam = dynamic_cast<const torch::optim::AdamOptions*>(&options))
    return adam_rule(*adam, false);
  if (const auto* adamw = dynamic_cast<const torch::optim::AdamWOptions*>(&options))
    return adam_rule(*adamw, true);
  throw InvalidArgument(c10::str(
      "[update_rule_of] expected an optimizer that parameter servers know (SGD, Adagrad, Adam or AdamW, "
      "of torch::optim or fused, or one that HasUpdateRule), but got ",
      c10::demangle(typeid(optimizer).name())));
}

}  // namespace lockstep
