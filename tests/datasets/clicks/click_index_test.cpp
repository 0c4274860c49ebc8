// The index of a click file: where it is kept, when it is trusted, and what happens if it is damaged.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/datasets/clicks/click_file.h"
#include "lockstep/datasets/clicks/generated_clicks.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/datasets/files/compressed_files.h"
#include "lockstep/tests/support/file_size_limit.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names_in;
using testing::read_text;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;
using testing::write_text;

constexpr size_t kCount = 10'000;

class ClickIndexTest : public ::testing::Test {
 protected:
  ClickIndexTest() {
    folder_.write("data/day_0", text_);
    ::setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1);
  }
  ~ClickIndexTest() override { ::unsetenv("XDG_CACHE_HOME"); }

  /// Made once: under a sanitizer, that takes longer than most tests.
  static const GeneratedClicks& clicks() {
    static const GeneratedClicks made;
    return made;
  }
  static const std::string& text() {
    static const std::string made = [] {
      std::string rows;
      for (size_t i = 0; i < kCount; ++i) rows += click_row_text(clicks().row(i)) + "\n";
      return rows;
    }();
    return made;
  }

  ClickFileOptions options(const std::string& name = "day_0") {
    return {.path = folder_.file("data/" + name),
            .save_index_from_bytes = 0,
            .on_message = [this](const std::string& text) { messages_.push_back(text); }};
  }
  /// Opens the file and checks some of its rows. Returns whether an index was built for it.
  bool builds_index(const ClickFileOptions& opened) {
    messages_.clear();
    const ClickFile file(opened);
    EXPECT_EQ(file.size(), kCount);
    const std::vector<size_t> some{9999, 0, 4095, 4096, 17, 18, 19, 5000};
    const auto batch = file.get_batch(some);
    EXPECT_TRUE(std::get<1>(batch.data).equal(std::get<1>(clicks_.get_batch(some).data)));
    EXPECT_TRUE(batch.target.equal(clicks_.get_batch(some).target));
    return !messages_.empty();
  }
  std::string beside(const std::string& name) const { return folder_.file("data/.lockstep/" + name); }

  const GeneratedClicks& clicks_ = clicks();
  const std::string& text_ = text();
  const TemporaryFolder folder_;
  const TemporaryFolder cache_;
  std::vector<std::string> messages_;
};

TEST_F(ClickIndexTest, IsBuiltOnceAndKeptBesideTheFile) {
  EXPECT_TRUE(builds_index(options()));
  EXPECT_THAT(messages_, ElementsAre(folder_.file("data/day_0") + ": indexing its rows, once"));
  EXPECT_THAT(names_in(folder_.file("data")), ElementsAre(".lockstep", "day_0"));
  EXPECT_THAT(names_in(beside("")), ElementsAre("day_0.index"));
  EXPECT_FALSE(builds_index(options()));
  EXPECT_THAT(names_in(cache_.path()), IsEmpty());
}

TEST_F(ClickIndexTest, SmallFilesLeaveNoIndexBehind) {
  auto small = options();
  small.save_index_from_bytes = text_.size() + 1;
  EXPECT_FALSE(builds_index(small));
  EXPECT_THAT(names_in(folder_.file("data")), ElementsAre("day_0"));
}

TEST_F(ClickIndexTest, IsBuiltAgainIfTheFileChanges) {
  EXPECT_TRUE(builds_index(options()));
  const auto path = folder_.file("data/day_0");
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::milliseconds(1));
  EXPECT_TRUE(builds_index(options()));
  EXPECT_FALSE(builds_index(options()));
  const auto time = fs::last_write_time(path);
  std::ofstream(path, std::ios::app) << text_.substr(0, text_.find('\n') + 1);
  fs::last_write_time(path, time);
  EXPECT_EQ(ClickFile(options()).size(), kCount + 1);
}

TEST_F(ClickIndexTest, DamagedIndicesAreBuiltAgainAndNeverBelieved) {
  EXPECT_TRUE(builds_index(options()));
  const std::string whole = read_text(beside("day_0.index"));
  for (size_t i = 0; i < whole.size(); i += 1 + whole.size() / 50) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    write_text(beside("day_0.index"), damaged);
    EXPECT_TRUE(builds_index(options())) << i;
    write_text(beside("day_0.index"), whole.substr(0, i));
    EXPECT_TRUE(builds_index(options())) << i;
  }
  EXPECT_EQ(read_text(beside("day_0.index")), whole);
  fs::remove(beside("day_0.index"));
  fs::create_directory(beside("day_0.index"));  // cannot be replaced: the next place is taken
  EXPECT_TRUE(builds_index(options()));
  EXPECT_FALSE(builds_index(options()));
}

TEST_F(ClickIndexTest, GoesToTheNamedFolderOrElseToTheUsersCache) {
  auto named = options();
  named.index_folder = folder_.file("a/new/folder");
  EXPECT_TRUE(builds_index(named));
  EXPECT_FALSE(builds_index(named));
  EXPECT_THAT(names_in(named.index_folder), ElementsAre(::testing::MatchesRegex("day_0-[0-9a-f]+\\.index")));

  write_text(folder_.file("data/.lockstep"), "a file where the folder would be");
  EXPECT_TRUE(builds_index(options()));
  EXPECT_FALSE(builds_index(options()));
  EXPECT_THAT(names_in(cache_.file("lockstep/clicks")),
              ElementsAre(::testing::MatchesRegex("day_0-.*index")));
  // A file of the same name elsewhere has its own index.
  folder_.write("other/.lockstep", "");
  folder_.write("other/day_0", text_.substr(0, text_.find('\n')));
  auto other = options();
  other.path = folder_.file("other/day_0");
  EXPECT_EQ(ClickFile(other).size(), 1U);
  EXPECT_FALSE(builds_index(options()));
}

TEST_F(ClickIndexTest, WithoutAnyPlaceItIsKeptInMemory) {
  write_text(folder_.file("data/.lockstep"), "");
  write_text(cache_.file("lockstep"), "");
  EXPECT_TRUE(builds_index(options()));
  EXPECT_THAT(messages_.back(), HasSubstr("its index is kept in memory, as it cannot be saved"));
  auto named = options();
  named.index_folder = cache_.file("lockstep/folder");
  EXPECT_THAT([&] { ClickFile file(named); },
              ThrowsMessage<DataError>(HasSubstr("choose another index folder")));
}

TEST_F(ClickIndexTest, SeveralThatOpenANewFileBuildOneIndex) {
  std::vector<std::thread> threads;
  std::vector<int> num_built(6);
  for (int& built : num_built) {
    threads.emplace_back([&] {
      auto own = options();
      own.on_message = [&](const std::string& text) { built += text.ends_with("indexing its rows, once"); };
      EXPECT_EQ(ClickFile(own).size(), kCount);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(std::accumulate(num_built.begin(), num_built.end(), 0), 1);
  EXPECT_THAT(names_in(beside("")), ElementsAre("day_0.index"));
}

TEST_F(ClickIndexTest, RemembersMalformedRows) {
  folder_.write("data/bad", "no\n" + text_ + "no\n");
  auto skipping = options("bad");
  EXPECT_THAT([&] { ClickFile file(skipping); }, ThrowsMessage<DataError>(HasSubstr("line 1: field 1")));
  skipping.skips_malformed = true;
  EXPECT_TRUE(builds_index(skipping));
  EXPECT_FALSE(builds_index(skipping));
  const ClickFile file(skipping);
  EXPECT_EQ(file.num_malformed(), 2);
  EXPECT_THAT(file.first_malformed(), HasSubstr("line 1: field 1"));
  EXPECT_THAT([&] { ClickFile strict(options("bad")); }, ThrowsMessage<DataError>(HasSubstr("bad: line 1")));
}

TEST_F(ClickIndexTest, CompressedFilesAreDecompressedOnce) {
  folder_.write("data/day_1.gz", testing::gzip_of(text_));
  EXPECT_TRUE(builds_index(options("day_1.gz")));
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("day_1.gz: decompressing and indexing it, once")));
  EXPECT_FALSE(builds_index(options("day_1.gz")));
  EXPECT_THAT(names_in(beside("")), ElementsAre("day_1.gz.index", "day_1.gz.rows"));
  EXPECT_TRUE(read_text(beside("day_1.gz.rows")) == text_);
  // A copy that does not belong to the index is not trusted.
  write_text(beside("day_1.gz.rows"), text_);
  EXPECT_TRUE(builds_index(options("day_1.gz")));
  fs::remove(beside("day_1.gz.rows"));
  EXPECT_TRUE(builds_index(options("day_1.gz")));
#ifdef LOCKSTEP_TEST_ZSTD
  folder_.write("data/day_2.zst", testing::zstd_of(text_));
  EXPECT_TRUE(builds_index(options("day_2.zst")));
  EXPECT_FALSE(builds_index(options("day_2.zst")));
#endif
}

TEST_F(ClickIndexTest, ADiskThatIsTooSmallForTheCopyIsNamed) {
  folder_.write("data/day_1.gz", testing::gzip_of(text_));
  const testing::FileSizeLimit limit(text_.size() / 2);
  EXPECT_THAT([&] { ClickFile file(options("day_1.gz")); },
              ThrowsMessage<DataError>(
                  AllOf(HasSubstr("day_1.gz: expected a folder with room for its decompressed rows"),
                        HasSubstr("bytes of '" + beside("day_1.gz.rows")),
                        HasSubstr("bytes of '" + cache_.file("lockstep/clicks/")),
                        HasSubstr("choose another index folder"))));
  EXPECT_THAT(names_in(beside("")), IsEmpty());
  EXPECT_THAT(names_in(cache_.file("lockstep/clicks")), IsEmpty());
}

TEST_F(ClickIndexTest, ADiskThatIsTooSmallForTheCopyLeavesItToTheUsersCache) {
  folder_.write("data/day_1.gz", testing::gzip_of(text_));
  auto limit = std::make_optional<testing::FileSizeLimit>(text_.size() / 2);
  auto opened = options("day_1.gz");
  std::vector<std::string> messages;
  opened.on_message = [&](const std::string& text) {
    messages.push_back(text);
    if (messages.size() == 2) limit.reset();  // the second disk has room
  };
  const ClickFile file(opened);
  EXPECT_EQ(file.size(), kCount);
  EXPECT_EQ(file.get_batch({kCount - 1}).target.size(0), 1);
  EXPECT_THAT(messages, ElementsAre(HasSubstr("decompressing and indexing it, once"),
                                    HasSubstr("day_1.gz: cannot write more than"),
                                    HasSubstr("decompressing and indexing it, once")));
  EXPECT_THAT(names_in(beside("")), IsEmpty());
  const auto names = names_in(cache_.file("lockstep/clicks"));
  ASSERT_THAT(names, ElementsAre(::testing::EndsWith(".index"), ::testing::EndsWith(".rows")));
  EXPECT_TRUE(read_text(cache_.file("lockstep/clicks/" + names[1])) == text_);
  EXPECT_FALSE(builds_index(options("day_1.gz")));
}

TEST_F(ClickIndexTest, ADamagedCompressedFileLeavesNoCopy) {
  const std::string bytes = testing::gzip_of(text_);
  folder_.write("data/day_1.gz", bytes.substr(0, bytes.size() - 9));
  EXPECT_THAT([&] { ClickFile file(options("day_1.gz")); },
              ThrowsMessage<DataError>(HasSubstr("damaged gzip file: it ends too early")));
  EXPECT_THAT(names_in(beside("")), IsEmpty());
}

}  // namespace
}  // namespace lockstep
