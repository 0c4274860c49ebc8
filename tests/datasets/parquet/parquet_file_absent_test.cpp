#include <gmock/gmock.h>

#include "lockstep/datasets/files/data_error.h"
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

}  // namespace
}  // namespace lockstep
