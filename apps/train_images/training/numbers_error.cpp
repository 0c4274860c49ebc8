#include "lockstep/apps/train_images/training/numbers_error.h"

#include <fmt/format.h>

namespace lockstep::apps {

NumbersError not_finite(const NotFinite::Place& place, const TrainOptions& options, const TrainPlan& plan) {
  const std::string what =
      place.tensor.empty() ? fmt::format("expected a finite loss, but replica {} ({}) got NaN or infinity",
                                         place.replica, place.device)
                           : fmt::format("expected a finite state, but replica {} has NaN or infinity in {}",
                                         place.replica, place.tensor);
  const std::string scaled =
      options.scale_learning_rate ? fmt::format(", scaled to {}", plan.learning_rate) : std::string();
  return NumbersError(
      fmt::format("epoch {}, step {}: {} (--learning-rate {}{}); a smaller learning rate may help",
                  place.epoch, place.step, what, options.learning_rate, scaled));
}

}  // namespace lockstep::apps
