#pragma once

#include <string>

namespace lockstep::apps {

/// Creates the folder for a comparison's results and returns its path. `out` must be new or empty; if `out`
/// is the empty string, creates a folder in ./comparisons that is named by the time. Throws UsageError naming
/// the folder.
std::string make_result_folder(const std::string& out);

/// Temporary folder for the files that the processes exchange; the destructor removes it with its contents.
/// The constructor throws std::system_error if it cannot be created.
class WorkFolder {
 public:
  WorkFolder();
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::apps
