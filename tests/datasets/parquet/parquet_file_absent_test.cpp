#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/parquet/internal/find_parquet_files.h"
#include "lockstep/datasets/parquet/internal/parquet_profile.h"
#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {
namespace {

TEST(ParquetFileWithoutArrow, SaysWhatToInstall) {
  try {
    ParquetFile file({.path = "clicks.parquet"});
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("clicks.parquet: "));
    EXPECT_THAT(error.what(), testing::HasSubstr("without Apache Arrow"));
    EXPECT_THAT(error.what(), testing::HasSubstr("scripts/setup.sh"));
  }
}

TEST(ParquetFileWithoutArrow, NamesStoresWithoutTheirCredentials) {
  const std::string uri = "s3://user1:secret@bucket/clicks.parquet?region=eu-west-1";
  const std::vector<std::function<void()>> calls{[&] { find_parquet_files({uri}); },
                                                 [&] { ParquetFile file({.path = uri}); },
                                                 [&] { open_profile(uri); }};
  for (const auto& call : calls) {
    try {
      call();
      FAIL() << "expected a DataError";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("s3://bucket/clicks.parquet: "));
      EXPECT_THAT(error.what(), testing::HasSubstr("without Apache Arrow"));
    }
  }
}

}  // namespace
}  // namespace lockstep
