#pragma once

#include <stdexcept>

namespace lockstep::apps {

/// Thrown for an invalid command line. The message names the flag, the expected value and the given one.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep::apps
