#include "lockstep/runtime/gradients/elementwise_optimizers.h"

#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <typeinfo>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/replicas/elementwise_step.h"

namespace lockstep {

bool is_elementwise(const torch::optim::Optimizer& optimizer) {
  if (const auto* step = dynamic_cast<const ElementwiseStep*>(&optimizer)) return step->is_elementwise();
  // A derived class may override step().
  const std::type_info& type = typeid(optimizer);
  return type == typeid(torch::optim::SGD) || type == typeid(torch::optim::Adam) ||
         type == typeid(torch::optim::AdamW) || type == typeid(torch::optim::Adagrad) ||
         type == typeid(torch::optim::RMSprop);
}

void check_elementwise(const torch::optim::Optimizer& optimizer) {
  if (is_elementwise(optimizer)) return;
  throw InvalidArgument(c10::str(
      "[sharding] expected an elementwise optimizer, of which each replica can step its part of the "
      "parameters, such as FusedAdamW, FusedSgd or torch::optim's SGD, Adam, AdamW, Adagrad and RMSprop, but "
      "got ",
      c10::demangle(typeid(optimizer).name()),
      ": if its step computes each element by itself, derive the class from ElementwiseStep, too"));
}

}  // namespace lockstep
