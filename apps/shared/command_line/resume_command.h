#pragma once

#include <string>
#include <vector>

namespace lockstep::apps {

/// What to type for a training to go on from its backup: the command that began it, but for --resume, whose
/// default does that. Quoted for a shell.
std::string resume_command(const std::string& program, const std::vector<std::string>& arguments);

}  // namespace lockstep::apps
