#include "lockstep/datasets/files/internal/cache_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/tests/support/file_size_limit.h"
#include "lockstep/tests/support/other_process.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names_in;
using testing::OtherProcess;
using testing::read_text;
using testing::TemporaryFolder;
using ::testing::Throws;
using ::testing::ThrowsMessage;

class CacheFileTest : public ::testing::Test {
 protected:
  bool is_ready() const { return read_text(path_) == "whole"; }
  CacheBuild build_of(std::function<void(NewFile&)> write) {
    return {.is_ready = [this] { return is_ready(); },
            .write = std::move(write),
            .on_wait = [this] { ++num_waiting_; }};
  }
  static void write_whole(NewFile& file) {
    file.append("xxxle");
    file.overwrite(0, "who");
  }
  const TemporaryFolder folder_;
  const std::string path_ = folder_.file("cache");
  std::atomic<int> num_waiting_ = 0;
};

TEST_F(CacheFileTest, IsBuiltOnceAndLeavesNothingElse) {
  int num_built = 0;
  for (int i = 0; i < 2; ++i) {
    build_cache_file(path_, build_of([&](NewFile& file) {
                       ++num_built;
                       EXPECT_FALSE(std::filesystem::exists(path_));
                       write_whole(file);
                     }));
  }
  EXPECT_EQ(num_built, 1);
  EXPECT_TRUE(is_ready());
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("cache"));
}

TEST_F(CacheFileTest, ReplacesAFileThatIsOfNoUse) {
  folder_.write("cache", "damaged");
  build_cache_file(path_, build_of(write_whole));
  EXPECT_TRUE(is_ready());
}

TEST_F(CacheFileTest, OneOfSeveralBuildsItAndTheOthersWait) {
  constexpr int kThreads = 8;
  std::atomic<int> num_built = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      build_cache_file(path_, build_of([&](NewFile& file) {
                         ++num_built;
                         while (num_waiting_ < kThreads - 1) std::this_thread::yield();
                         write_whole(file);
                       }));
      EXPECT_TRUE(is_ready());
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(num_built, 1);
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("cache"));
}

TEST_F(CacheFileTest, AKilledBuilderIsReplacedAndItsPartIsNotTrusted) {
  OtherProcess builder([&] {
    std::thread([&] {
      build_cache_file(path_, build_of([](NewFile& file) {
                         file.append("whole");  // all of it, but not committed
                         std::this_thread::sleep_for(std::chrono::hours(1));
                       }));
    }).detach();
    while (read_text(path_ + ".part") != "whole") std::this_thread::yield();
  });
  ASSERT_TRUE(builder.is_ready());
  std::thread waiting([&] {
    build_cache_file(path_, build_of([](NewFile& file) {
                       EXPECT_EQ(file.size(), 0U);
                       write_whole(file);
                     }));
  });
  while (num_waiting_ == 0) std::this_thread::yield();
  EXPECT_FALSE(std::filesystem::exists(path_));
  builder.end();
  waiting.join();
  EXPECT_TRUE(is_ready());
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("cache"));
}

mode_t mode_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
}

/// The part is a lock, too, which others could take if they could read it.
TEST_F(CacheFileTest, OnlyItsUserCanReadThePartWhateverTheUmask) {
  for (const mode_t mask : {0000, 0027}) {
    const mode_t before = ::umask(mask);
    std::filesystem::remove(path_);
    testing::write_text(path_ + ".part", "left by an earlier version");
    ASSERT_EQ(::chmod((path_ + ".part").c_str(), 0666), 0);
    mode_t of_part = 0;
    build_cache_file(path_, build_of([&](NewFile& file) {
                       of_part = mode_of(path_ + ".part");
                       write_whole(file);
                     }));
    ::umask(before);
    EXPECT_EQ(of_part, 0600U) << mask;
    EXPECT_EQ(mode_of(path_), 0666U & ~mask);
  }
}

TEST_F(CacheFileTest, AnotherUserCannotKeepAFileFromBeingBuilt) {
  if (!testing::can_become_other_user()) GTEST_SKIP() << "only root can become another user";
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  build_cache_file(path_, build_of([&](NewFile& file) {
                     EXPECT_TRUE(testing::run_as_other_user(
                         [&] { return ::open((path_ + ".part").c_str(), O_RDONLY) < 0 && errno == EACCES; }));
                     write_whole(file);
                   }));
  EXPECT_TRUE(is_ready());
}

TEST_F(CacheFileTest, AFailedBuildLeavesNothing) {
  EXPECT_THAT(
      [&] {
        build_cache_file(path_, build_of([](NewFile& file) {
                           file.append("wh");
                           throw std::runtime_error("no");
                         }));
      },
      ThrowsMessage<std::runtime_error>("no"));
  EXPECT_THAT(names_in(folder_.path()), IsEmpty());
}

TEST_F(CacheFileTest, ADiskThatIsFullIsAnErrorThatNamesTheFile) {
  const testing::FileSizeLimit limit(1000);
  EXPECT_THAT(
      [&] { build_cache_file(path_, build_of([](NewFile& file) { file.append(std::string(2000, 'x')); })); },
      ThrowsMessage<std::system_error>(HasSubstr(path_ + ".part")));
  EXPECT_THAT(names_in(folder_.path()), IsEmpty());
}

TEST_F(CacheFileTest, AFolderThatIsMissingIsAnErrorThatNamesTheFile) {
  EXPECT_THAT([&] { build_cache_file(folder_.file("none/cache"), build_of(write_whole)); },
              ThrowsMessage<std::system_error>(HasSubstr("none/cache.part")));
}

}  // namespace
}  // namespace lockstep
