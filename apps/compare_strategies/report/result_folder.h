#pragma once

#include <string>

namespace lockstep::apps {

/// Makes the folder for a comparison's results and returns its path: `out`, which must be new or empty, or
/// where that is empty a new one in ./comparisons, named by the time. Throws UsageError naming the folder.
std::string make_result_folder(const std::string& out);

/// A folder for the files between the processes, removed with all it holds at the end. Throws
/// std::system_error where none can be made.
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
