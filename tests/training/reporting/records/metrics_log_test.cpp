#include "lockstep/training/reporting/records/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/file_size_limit.h"
#include "lockstep/tests/support/odd_numbers.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::FileSizeLimit;
using ::testing::HasSubstr;
using testing::kInfinity;
using testing::kNan;
using testing::names_in;
using testing::read_text;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;
using testing::write_text;

MetricRow one_epoch(int64_t epoch) {
  return {{"epoch", epoch}, {"loss", 0.1 * static_cast<double>(epoch)}};
}

TEST(CsvLogTest, WritesAHeaderAndARowEach) {
  const TemporaryFolder folder;
  CsvLog log(folder.path() + "/metrics.csv");
  log.write(one_epoch(1));
  log.write(one_epoch(3));
  EXPECT_EQ(read_text(folder.path() + "/metrics.csv"), "epoch,loss\n1,0.1\n3,0.30000000000000004\n");
}

TEST(CsvLogTest, LeavesACellEmptyForWhatARowLacksWhateverItsOrder) {
  const TemporaryFolder folder;
  CsvLog log(folder.path() + "/metrics.csv");
  log.write({{"epoch", int64_t{1}}, {"loss", 0.5}, {"note", "good"}});
  log.write({{"note", "short"}, {"epoch", int64_t{2}}});
  EXPECT_EQ(read_text(folder.path() + "/metrics.csv"), "epoch,loss,note\n1,0.5,good\n2,,short\n");
}

TEST(CsvLogTest, GrowsByColumnsThatComeLater) {
  const TemporaryFolder folder;
  CsvLog log(folder.path() + "/metrics.csv");
  log.write({{"epoch", int64_t{1}}, {"note", "two\nlines, and \"quotes\""}});
  log.write({{"epoch", int64_t{2}}, {"validation_loss", 0.25}, {"validation_accuracy", 1.0}});
  log.write(one_epoch(3));
  EXPECT_EQ(read_text(folder.path() + "/metrics.csv"),
            "epoch,note,validation_loss,validation_accuracy,loss\n"
            "1,\"two\nlines, and \"\"quotes\"\"\",,,\n"
            "2,,0.25,1,\n"
            "3,,,,0.30000000000000004\n");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("metrics.csv"));
}

TEST(CsvLogTest, DefinesWhatIsNotFinite) {
  const TemporaryFolder folder;
  CsvLog log(folder.path() + "/metrics.csv");
  log.write({{"a", kNan}, {"b", -kNan}, {"c", kInfinity}, {"d", -kInfinity}});
  EXPECT_EQ(read_text(folder.path() + "/metrics.csv"), "a,b,c,d\nnan,nan,inf,-inf\n");
}

TEST(CsvLogTest, KeepsWholeRowsOnAFullDisk) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/metrics.csv";
  CsvLog log(path);
  log.write(one_epoch(1));
  {
    const FileSizeLimit limit(20);
    EXPECT_THAT([&] { log.write(one_epoch(2)); }, ThrowsMessage<std::system_error>(HasSubstr(path)));
    EXPECT_EQ(read_text(path), "epoch,loss\n1,0.1\n");
    EXPECT_THROW(log.write({{"epoch", int64_t{2}}, {"accuracy", 0.5}}), std::system_error);
    EXPECT_EQ(read_text(path), "epoch,loss\n1,0.1\n");
    EXPECT_THAT(names_in(folder.path()), ElementsAre("metrics.csv"));
  }
  log.write(one_epoch(2));
  EXPECT_EQ(read_text(path), "epoch,loss\n1,0.1\n2,0.2\n");
}

TEST(CsvLogTest, KeepsItsRowsWhereTheyCannotBeReadAgain) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/metrics.csv";
  CsvLog log(path);
  log.write(one_epoch(1));
  std::filesystem::rename(path, folder.path() + "/moved.csv");
  EXPECT_THAT(
      [&] {
        log.write({{"epoch", int64_t{2}}, {"accuracy", 0.5}});
      },
      ThrowsMessage<std::system_error>(HasSubstr("cannot open '" + path + "'")));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("moved.csv"));
  EXPECT_EQ(read_text(folder.path() + "/moved.csv"), "epoch,loss\n1,0.1\n");
}

TEST(CsvLogTest, RefusesRowsThatAreNone) {
  const TemporaryFolder folder;
  CsvLog log(folder.path() + "/metrics.csv");
  EXPECT_THAT([&] { log.write({}); }, ThrowsMessage<InvalidArgument>(HasSubstr("at least one value")));
  EXPECT_THAT(
      [&] {
        log.write({{"loss", 1.0}, {"loss", 2.0}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("'loss' twice")));
}

TEST(CsvLogTest, OverwritesNothing) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/metrics.csv";
  write_text(path, "theirs");
  EXPECT_THAT([&] { CsvLog log(path); }, ThrowsMessage<std::system_error>(HasSubstr(path)));
  EXPECT_EQ(read_text(path), "theirs");
}

TEST(JsonLinesLogTest, WritesAnObjectALine) {
  const TemporaryFolder folder;
  JsonLinesLog log(folder.path() + "/metrics.jsonl");
  log.write({{"kind", "epoch"}, {"loss", 0.1}, {"step", int64_t{12}}});
  log.write({{"loss", kNan}, {"a \"b\"\n", -kInfinity}});
  EXPECT_EQ(read_text(folder.path() + "/metrics.jsonl"),
            "{\"kind\": \"epoch\", \"loss\": 0.1, \"step\": 12}\n"
            "{\"loss\": \"nan\", \"a \\\"b\\\"\\n\": \"-inf\"}\n");
}

TEST(JsonLinesLogTest, ReplacesWhatIsNoUtf8) {
  const TemporaryFolder folder;
  JsonLinesLog log(folder.path() + "/metrics.jsonl");
  log.write({{"note", "a\xFFz"}});
  EXPECT_EQ(read_text(folder.path() + "/metrics.jsonl"), "{\"note\": \"a\xEF\xBF\xBDz\"}\n");
}

}  // namespace
}  // namespace lockstep
