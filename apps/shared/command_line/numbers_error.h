#pragma once

#include <stdexcept>

namespace lockstep::apps {

/// Thrown for numbers that cannot be right, such as a loss that is NaN. The message names where it arose.
class NumbersError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep::apps
