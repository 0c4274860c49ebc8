#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/tests/support/test_files.h"

namespace lockstep {

/// Files `<class>/<number>.png`; image number i is made from seed i.
inline std::vector<testing::ArchiveFile> make_files(int num_classes, int per_class, int64_t channels = 1) {
  std::vector<testing::ArchiveFile> files;
  for (int label = 0; label < num_classes; ++label) {
    for (int i = 0; i < per_class; ++i) {
      const auto seed = static_cast<uint64_t>(label * per_class + i);
      files.push_back({std::to_string(label) + "/" + std::to_string(100 + i) + ".png",
                       testing::encode_png(testing::make_image(6, 5, channels, seed))});
    }
  }
  return files;
}

class ImageFolderTest : public ::testing::Test {
 protected:
  std::string root() const { return folder_.path() + "/root"; }

  void write(const std::vector<testing::ArchiveFile>& files) const {
    for (const auto& file : files) folder_.write("root/" + file.name, file.bytes);
  }

  testing::TemporaryFolder folder_;
};

}  // namespace lockstep
