#include "lockstep/apps/shared/run_retryable.h"

#include <csignal>
#include <exception>

#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/apps/shared/command_line/retryable_exit_code.h"
#include "lockstep/apps/shared/stopped.h"

namespace lockstep::apps {

int run_retryable(int retryable, const std::function<void()>& run) {
  try {
    run();
  } catch (const Stopped& stopped) {
    // SIGINT comes from a person, who wants the program to end.
    if (retryable == 0 || stopped.signal != SIGTERM || !stopped.is_saved) throw;
    return retryable;
  } catch (const Failure& failure) {
    throw with_retryable_exit_code(failure, retryable);
  } catch (...) {
    throw with_retryable_exit_code(describe_failure(std::current_exception()), retryable);
  }
  return 0;
}

}  // namespace lockstep::apps
