#pragma once

#include <stdexcept>
#include <string>
#include <system_error>

namespace lockstep::apps {

/// A folder that a flag names cannot be written, and a restart would not change that. Programs then exit with
/// ExitCode::kCheckpoint.
class FolderError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Whether an error of a file or folder that a program may not write would come again after a restart.
bool is_refused_for_good(const std::error_code& error);

/// Makes the folder that `flag` names, and a file in it that is removed again, so that a training does not
/// find out at its first save. Throws FolderError naming the flag, the folder and the cause. Throws
/// std::system_error naming them if the cause may pass, such as a full disk. Does nothing if `folder` is
/// empty.
void require_writable_folder(const std::string& flag, const std::string& folder);

}  // namespace lockstep::apps
