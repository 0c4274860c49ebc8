#include "lockstep/apps/train_mnist/numbers_error.h"

#include <fmt/format.h>

namespace lockstep::apps {

NumbersError loss_not_finite(int64_t epoch, int64_t step, int64_t replica, const std::string& device,
                             const TrainOptions& options, const TrainPlan& plan) {
  const std::string scaled =
      options.scale_learning_rate ? fmt::format(", scaled to {}", plan.learning_rate) : std::string();
  return NumbersError(
      fmt::format("epoch {}, step {}: expected a finite loss, but replica {} ({}) got NaN or infinity "
                  "(--learning-rate {}{}); a smaller learning rate may help",
                  epoch, step, replica, device, options.learning_rate, scaled));
}

}  // namespace lockstep::apps
