#include "lockstep/training/reporting/tensorboard/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/file_size_limit.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/tests/support/text_files.h"

// tensorboard_test.py checks how TensorBoard reads these files.
namespace lockstep {
namespace {

using testing::FileSizeLimit;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::names_in;
using testing::read_text;
using ::testing::SizeIs;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;
using testing::write_text;

TEST(EventFileTest, IsNamedAsTensorBoardExpects) {
  const TemporaryFolder folder;
  const EventFileWriter writer(folder.path() + "/tb/train");
  ASSERT_THAT(names_in(folder.path() + "/tb/train"), SizeIs(1));
  EXPECT_THAT(names_in(folder.path() + "/tb/train")[0],
              MatchesRegex("events\\.out\\.tfevents\\.[0-9]+\\..+\\." + std::to_string(getpid()) + "\\.0"));
}

TEST(EventFileTest, TwoWritersOfOneFolderWriteTwoFiles) {
  const TemporaryFolder folder;
  const EventFileWriter first(folder.path());
  const EventFileWriter second(folder.path());
  EXPECT_NE(first.path(), second.path());
  EXPECT_THAT(names_in(folder.path()), SizeIs(2));
}

TEST(EventFileTest, HasWrittenWhenACallReturns) {
  const TemporaryFolder folder;
  EventFileWriter writer(folder.path());
  const size_t before = read_text(writer.path()).size();
  writer.scalar("loss", 0.5, {.step = 1});
  EXPECT_GT(read_text(writer.path()).size(), before);
}

TEST(EventFileTest, KeepsWholeRecordsOnAFullDisk) {
  const TemporaryFolder folder;
  EventFileWriter writer(folder.path());
  writer.scalar("loss", 0.5, {.step = 1});
  const std::string before = read_text(writer.path());
  {
    const FileSizeLimit limit(before.size() + 10);
    EXPECT_THAT([&] { writer.scalar("loss", 0.25, {.step = 2}); },
                ThrowsMessage<std::system_error>(HasSubstr(writer.path())));
    EXPECT_EQ(read_text(writer.path()), before);
  }
  writer.scalar("loss", 0.25, {.step = 2});
  EXPECT_GT(read_text(writer.path()).size(), before.size());
}

TEST(EventFileTest, RefusesAnImageThatIsNoPng) {
  const TemporaryFolder folder;
  EventFileWriter writer(folder.path());
  const auto png = testing::encode_png(testing::make_image(5, 7, 3));
  const std::span<const uint8_t> bytes(png);
  EXPECT_NO_THROW(writer.image("image", bytes, {}));
  EXPECT_THAT([&] { writer.image("image", bytes.first(23), {}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("expected a PNG file, but got 23 bytes")));
  EXPECT_THROW(writer.image("image", bytes.subspan(1), {}), InvalidArgument);
  EXPECT_THROW(writer.image("image", {}, {}), InvalidArgument);
}

TEST(EventFileTest, NamesTheFolderItCannotMake) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/file";
  write_text(file, "text");
  EXPECT_THAT([&] { EventFileWriter writer(file + "/tb"); },
              ThrowsMessage<std::system_error>(HasSubstr(file + "/tb")));
}

}  // namespace
}  // namespace lockstep
