#pragma once

#include <string>

namespace lockstep::apps {

/// Throws UsageError naming the flag if a file's place is a URI that holds a user or a password: it would be
/// recorded with the run.
void refuse_credentials(const std::string& flag, const std::string& place);

}  // namespace lockstep::apps
