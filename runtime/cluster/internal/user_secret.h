#pragma once

#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// Returns the secret that only processes of this user can read, and that is the same in all of them whose
/// environments name the same folder. It is in the file lockstep/user_secret below XDG_RUNTIME_DIR; if that
/// is not set, below XDG_CACHE_HOME or ~/.cache. The first call makes the file. Processes that call this at
/// the same time get the same secret. Reads and writes a file, but does not wait for other processes.
///
/// Throws InvalidArgument naming the file or folder if it cannot be made or read, if the file is a link or
/// belongs to another user, if others may read or write it, or if it holds anything else. Like the XDG
/// specification, this ignores variables that hold relative paths.
JobToken user_secret(const Environment& environment);

}  // namespace lockstep
