#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep::testing {

/// A file in a new folder of its own, removed with it at the end.
class WrittenFile {
 public:
  explicit WrittenFile(std::string_view text, const std::string& name = "config.json") {
    std::string folder = (std::filesystem::temp_directory_path() / "lockstep-file-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot make " + folder);
    folder_ = folder;
    path_ = folder_ + "/" + name;
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~WrittenFile() { std::filesystem::remove_all(folder_); }
  WrittenFile(const WrittenFile&) = delete;
  WrittenFile& operator=(const WrittenFile&) = delete;

  const std::string& folder() const { return folder_; }
  const std::string& path() const { return path_; }

 private:
  std::string folder_;
  std::string path_;
};

}  // namespace lockstep::testing
