#include "lockstep/apps/shared/command_line/retryable_exit_code.h"

#include "lockstep/apps/shared/exit_code.h"

namespace lockstep::apps {
namespace {

constexpr const char* kName = "retryable-exit-code";
constexpr IntegerRange kCodes{.least = 128, .most = 255};

}  // namespace

Flag retryable_exit_code_flag() {
  return {"Run",
          kName,
          "N",
          "Exit with N, from 128 to 255, if the same command may succeed when it is run again: instead of 5 "
          "and 7, and of 143 if SIGTERM came and the training is saved in --backup-dir. For schedulers that "
          "restart a program after some exit codes only, as Kubeflow does from 128 on (default: none)",
          "",
          FlagRole::kProcess};
}

int read_retryable_exit_code(const Arguments& given) {
  return static_cast<int>(given.integer(kName, kCodes, 0));
}

bool may_succeed_when_restarted(int exit_code) {
  return exit_code == static_cast<int>(ExitCode::kPeer) ||
         exit_code == static_cast<int>(ExitCode::kResources);
}

Failure with_retryable_exit_code(Failure failure, int retryable) {
  if (retryable != 0 && may_succeed_when_restarted(failure.exit_code)) failure.exit_code = retryable;
  return failure;
}

}  // namespace lockstep::apps
