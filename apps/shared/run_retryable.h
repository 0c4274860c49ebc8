#pragma once

#include <functional>

namespace lockstep::apps {

/// Calls `run` and returns the exit code for the body of run_torch_program(). With a `retryable` exit code
/// other than 0, failures that another start may mend end with that code, and so does SIGTERM if the training
/// is saved; see with_retryable_exit_code() and Stopped. Throws everything else that `run` throws.
int run_retryable(int retryable, const std::function<void()>& run);

}  // namespace lockstep::apps
