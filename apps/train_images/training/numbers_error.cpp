#include "lockstep/apps/train_images/training/numbers_error.h"

#include <fmt/format.h>

namespace lockstep::apps {

NumbersError not_finite(const NotFinite::Place& place, const TrainOptions& options, const TrainPlan& plan) {
  const std::string scaled =
      options.scale_learning_rate ? fmt::format(", scaled to {}", plan.learning_rate) : std::string();
  return not_finite_error(place, fmt::format("--learning-rate {}{}", options.learning_rate, scaled));
}

}  // namespace lockstep::apps
