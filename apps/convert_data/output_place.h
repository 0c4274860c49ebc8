#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep::apps {

/// Whether a file or folder in an output folder may belong to an earlier conversion: `name` is relative to
/// the folder, and ends with a slash if it is a folder.
using IsOwnFile = std::function<bool(const std::string& name)>;

/// The place of an output: a file, or a folder that gets its name when it is complete.
class OutputPlace {
 public:
  struct Options {
    std::string path;
    bool is_file = false;
    bool overwrites = false;
    std::vector<std::string> inputs = {};  ///< files and folders on this machine that are read
    /// A folder that holds anything else is not replaced.
    IsOwnFile is_own = [](const std::string&) { return true; };
  };

  /// Checks that the output may be written, and creates a folder beside it for a folder's files. Throws
  /// UsageError if the output exists and is not to be overwritten, is of the other kind, holds files of
  /// others, or is or holds an input; and std::system_error naming the folder if it cannot be created.
  explicit OutputPlace(Options options);
  /// Removes what was not committed.
  ~OutputPlace();
  OutputPlace(const OutputPlace&) = delete;
  OutputPlace& operator=(const OutputPlace&) = delete;

  /// Returns the path of the file, or that of the folder in which files are made.
  const std::string& path() const { return options_.is_file ? options_.path : staging_; }
  /// Gives a folder its name, in place of the folder that had it. Throws std::system_error naming it.
  void commit();

 private:
  void check_inputs() const;
  void check_folder() const;

  Options options_;
  std::string staging_;  // empty: nothing to remove
};

}  // namespace lockstep::apps
