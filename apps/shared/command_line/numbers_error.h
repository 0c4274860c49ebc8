#pragma once

#include <stdexcept>
#include <string>

#include "lockstep/training/state/not_finite.h"

namespace lockstep::apps {

/// Thrown for numbers that cannot be right, such as a loss that is NaN. The message names where it arose.
class NumbersError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Creates the error for a loss or tensor that is not finite; `learning_rate` is the flag as it was given,
/// such as `--learning-rate 0.1`.
NumbersError not_finite_error(const NotFinite::Place& place, const std::string& learning_rate);

}  // namespace lockstep::apps
