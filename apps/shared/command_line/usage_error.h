#pragma once

#include <stdexcept>

namespace lockstep::apps {

/// A command line that cannot be run. The message names the flag, what was expected and what was given.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep::apps
