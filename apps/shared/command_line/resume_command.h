#pragma once

#include <string>
#include <vector>

namespace lockstep::apps {

/// Returns the command that resumes a training from its backup, quoted for a shell: the command that began it
/// without --resume, whose default resumes.
std::string resume_command(const std::string& program, const std::vector<std::string>& arguments);

}  // namespace lockstep::apps
