#include "lockstep/apps/train_images/training/optimizer_choice.h"

#include <utility>

#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep::apps {

Optimizer make_optimizer(const TrainOptions& options, double learning_rate,
                         std::vector<torch::Tensor> parameters) {
  switch (options.optimizer) {
    case OptimizerKind::kAdamW:
      return std::make_unique<FusedAdamW>(std::move(parameters), learning_rate);
    case OptimizerKind::kSgd:
      return std::make_unique<FusedSgd>(std::move(parameters),
                                        FusedSgdOptions(learning_rate).momentum(options.momentum));
    case OptimizerKind::kAdam:
      break;
  }
  return std::make_unique<FusedAdam>(std::move(parameters), learning_rate);
}

}  // namespace lockstep::apps
