#pragma once

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/apps/shared/command_line/flag_table.h"

namespace lockstep::apps {

/// Returns the flag --retryable-exit-code, for schedulers that decide by the exit code whether to start a
/// program again. Kubeflow does so after codes of 128 and above.
Flag retryable_exit_code_flag();

/// Returns the flag's value, or 0 if it was not given. Throws UsageError unless it is from 128 to 255.
int read_retryable_exit_code(const Arguments& given);

/// Returns whether a failure with this exit code may not occur again if the program is started once more:
/// lost workers, timeouts, and memory, disks or devices that failed.
bool may_succeed_when_restarted(int exit_code);

/// Returns `failure` with the exit code `retryable` if may_succeed_when_restarted(). If `retryable` is 0,
/// returns it unchanged.
Failure with_retryable_exit_code(Failure failure, int retryable);

}  // namespace lockstep::apps
