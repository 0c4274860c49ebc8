#include "lockstep/apps/shared/command_line/numbers_error.h"

#include <fmt/format.h>

namespace lockstep::apps {

NumbersError not_finite_error(const NotFinite::Place& place, const std::string& learning_rate) {
  const std::string what =
      place.tensor.empty() ? fmt::format("expected a finite loss, but replica {} ({}) got NaN or infinity",
                                         place.replica, place.device)
                           : fmt::format("expected a finite state, but replica {} has NaN or infinity in {}",
                                         place.replica, place.tensor);
  return NumbersError(fmt::format("epoch {}, step {}: {} ({}); a smaller learning rate may help", place.epoch,
                                  place.step, what, learning_rate));
}

}  // namespace lockstep::apps
