#include <arrow/filesystem/filesystem.h>
#include <gmock/gmock.h>

#include "lockstep/datasets/stores/internal/webhdfs_files.h"

namespace lockstep {
namespace {

TEST(WebHdfsWithoutLibcurl, SaysWhatToInstall) {
  const auto files =
      open_webhdfs({.scheme = "webhdfs", .authority = "namenode:9870", .path = "/a"}, /*attempts=*/1);
  ASSERT_FALSE(files.ok());
  EXPECT_THAT(files.status().message(), testing::HasSubstr("without libcurl"));
  EXPECT_THAT(files.status().message(), testing::HasSubstr("libcurl4-openssl-dev"));
}

}  // namespace
}  // namespace lockstep
