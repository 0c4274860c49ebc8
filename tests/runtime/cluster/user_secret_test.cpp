#include "lockstep/runtime/cluster/internal/user_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/environment_of.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/other_process.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr mode_t kPermissions = 07777;

mode_t mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status.st_mode & kPermissions;
}

/// A user whose variables name this folder.
class UserSecretTest : public ::testing::Test {
 protected:
  std::string secret() const { return user_secret(environment()).hex(); }
  Environment environment() const { return environment_of({{"XDG_RUNTIME_DIR", folder_.path()}}); }
  std::string file() const { return folder_.file("lockstep/user_secret"); }
  std::string refusal() const {
    return message_of<InvalidArgument>([&] { secret(); });
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(UserSecretTest, StaysTheSameInAFileThatOnlyThisUserCanRead) {
  const mode_t before = ::umask(0);
  const std::string first = secret();
  ::umask(before);
  EXPECT_THAT(first, MatchesRegex("[0-9a-f]{64}"));
  EXPECT_EQ(secret(), first);
  EXPECT_EQ(mode_of(file()), 0600U);
  EXPECT_EQ(mode_of(folder_.file("lockstep")), 0700U);
  // Nothing is left beside it.
  using Entries = std::filesystem::directory_iterator;
  EXPECT_EQ(std::distance(Entries(folder_.file("lockstep")), Entries()), 1);
}

TEST_F(UserSecretTest, DiffersBetweenFolders) {
  const testing::TemporaryFolder other;
  EXPECT_NE(user_secret(environment_of({{"XDG_RUNTIME_DIR", other.path()}})).hex(), secret());
}

TEST_F(UserSecretTest, IsInTheCacheFolderWithoutARuntimeFolder) {
  const std::string home = folder_.file("home");
  std::filesystem::create_directory(home);
  user_secret(environment_of({{"HOME", home}, {"XDG_RUNTIME_DIR", ""}}));
  EXPECT_EQ(mode_of(home + "/.cache/lockstep/user_secret"), 0600U);
  EXPECT_EQ(mode_of(home + "/.cache"), 0700U);
  // Relative paths do not count.
  const std::string cache = folder_.file("cache");
  user_secret(environment_of({{"HOME", home}, {"XDG_CACHE_HOME", cache}, {"XDG_RUNTIME_DIR", "run"}}));
  EXPECT_EQ(mode_of(cache + "/lockstep/user_secret"), 0600U);
}

TEST_F(UserSecretTest, IsTheSameForProcessesThatMakeItAtOnce) {
  constexpr size_t kProcesses = 16;
  constexpr size_t kDigits = 64;
  std::array<int, 2> start{};
  std::array<int, 2> secrets{};
  ASSERT_EQ(::pipe(start.data()), 0);
  ASSERT_EQ(::pipe(secrets.data()), 0);
  std::vector<pid_t> processes;
  for (size_t i = 0; i < kProcesses; ++i) {
    processes.push_back(::fork());
    ASSERT_GE(processes.back(), 0);
    if (processes.back() > 0) continue;
    ::close(start[1]);
    char end = 0;
    (void)!::read(start[0], &end, 1);  // until the test closes it
    const std::string digits = secret();
    ::_exit(::write(secrets[1], digits.data(), digits.size()) == kDigits ? 0 : 1);
  }
  ::close(start[0]);
  ::close(start[1]);
  ::close(secrets[1]);
  std::set<std::string> found;
  for (size_t i = 0; i < kProcesses; ++i) {
    std::string digits(kDigits, '\0');
    ASSERT_EQ(::read(secrets[0], digits.data(), digits.size()), static_cast<ssize_t>(kDigits));
    found.insert(digits);
  }
  ::close(secrets[0]);
  for (const pid_t process : processes) {
    int status = 0;
    ::waitpid(process, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(found, std::set<std::string>{secret()});
}

TEST_F(UserSecretTest, RefusesAFileThatOthersMayReadOrWrite) {
  secret();
  for (const mode_t mode : {0640U, 0604U, 0620U, 0666U}) {
    ASSERT_EQ(::chmod(file().c_str(), mode), 0);
    EXPECT_THAT(refusal(), AllOf(HasSubstr(file()), HasSubstr("one of mode 0"), HasSubstr("delete it")));
  }
  ASSERT_EQ(::chmod(file().c_str(), 0640), 0);
  EXPECT_THAT(refusal(), HasSubstr("one of mode 0640"));
  std::filesystem::remove(file());
  EXPECT_NO_THROW(secret());  // mended, as the message says
}

TEST_F(UserSecretTest, RefusesALinkAndWhatIsNoFile) {
  secret();
  std::filesystem::rename(file(), folder_.file("elsewhere"));
  std::filesystem::create_symlink(folder_.file("elsewhere"), file());
  EXPECT_THAT(refusal(), AllOf(HasSubstr(file()), HasSubstr("a symbolic link"), HasSubstr("delete it")));
  std::filesystem::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_THAT(refusal(), AllOf(HasSubstr(file()), HasSubstr("something other than a file")));
}

TEST_F(UserSecretTest, RefusesAnotherContentWithoutRepeatingIt) {
  secret();
  for (const std::string& content : {std::string(), std::string("s3cret\n"), std::string(65, 'x'),
                                     std::string(64, 'a'), std::string(65, 'a')}) {
    folder_.write("lockstep/user_secret", content);
    EXPECT_THAT(refusal(), AllOf(HasSubstr(file()), HasSubstr("64 hexadecimal digits"),
                                 ::testing::Not(HasSubstr("s3cret"))))
        << content;
  }
}

TEST_F(UserSecretTest, RefusesAFileOfAnotherUser) {
  if (!testing::can_become_other_user()) GTEST_SKIP() << "only root can give a file to another user";
  secret();
  ASSERT_EQ(::chown(file().c_str(), 65534, 65534), 0);
  EXPECT_THAT(refusal(), AllOf(HasSubstr(file()), HasSubstr("one of user 65534"), HasSubstr("delete it")));
}

TEST_F(UserSecretTest, IsOutOfReachOfAnotherUser) {
  if (!testing::can_become_other_user()) GTEST_SKIP() << "only root can become another user";
  secret();
  // Even in folders that everybody can enter.
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
  std::filesystem::permissions(folder_.file("lockstep"), std::filesystem::perms::all);
  EXPECT_TRUE(testing::run_as_other_user(
      [&] { return refusal() == file() + ": cannot read this file: Permission denied"; }));
}

TEST_F(UserSecretTest, NamesAFolderThatCannotBeMade) {
  const std::string missing = folder_.file("missing");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              user_secret(environment_of({{"XDG_RUNTIME_DIR", missing}, {"HOME", folder_.path()}}));
            }),
            missing + "/lockstep: cannot make this folder: No such file or directory");
  folder_.write("lockstep", "a file");
  EXPECT_THAT(refusal(), AllOf(HasSubstr(file()), HasSubstr("Not a directory")));
}

TEST_F(UserSecretTest, NamesTheVariablesIfNoneNamesAFolder) {
  for (const auto& variables : {Variables{}, Variables{{"HOME", ""}}, Variables{{"HOME", "home"}}})
    EXPECT_THAT(message_of<InvalidArgument>([&] { user_secret(environment_of(variables)); }),
                HasSubstr("expected XDG_RUNTIME_DIR, XDG_CACHE_HOME or HOME to name a folder"));
}

}  // namespace
}  // namespace lockstep
