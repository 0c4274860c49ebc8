#include "lockstep/apps/shared/command_line/retryable_exit_code.h"

#include "lockstep/apps/shared/exit_code.h"

namespace lockstep::apps {
namespace {

constexpr const char* kName = "retryable-exit-code";
constexpr IntegerRange kCodes{.least = 128, .most = 255};

}  // namespace

Flag retryable_exit_code_flag() {
  return {
      "Run",
      kName,
      "N",
      "Exit code (128 to 255) for failures that a restart may fix. Replaces 5 and 7, and also 143 if the "
      "run was saved to --backup-dir. For schedulers such as Kubeflow that restart only after codes of 128 "
      "and above (default: none)",
      "",
      FlagRole::kProcess};
}

int read_retryable_exit_code(const Arguments& given) {
  const auto code = static_cast<int>(given.integer(kName, kCodes, 0));
  if (code == 130 || code == 143)
    given.refuse(kName, "another code than 130 and 143, which tell that SIGINT or SIGTERM ended the program");
  return code;
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
