#include "lockstep/apps/compare_strategies/trials/child_processes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <iterator>
#include <system_error>

#include "lockstep/apps/compare_strategies/report/result_folder.h"

namespace lockstep::apps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ChildProcesses : public testing::Test {
 protected:
  /// A shell that runs `script`.
  ChildCommand shell(const std::string& script, const std::string& name = "output") {
    return {.arguments = {"/bin/sh", "-c", script}, .variables = {}, .output = folder_.path() + "/" + name};
  }

  std::string output(const std::string& name = "output") {
    std::ifstream file(folder_.path() + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  bool exists(const std::string& name) { return std::ifstream(folder_.path() + "/" + name).good(); }

  WorkFolder folder_;
};

double seconds_of(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST_F(ChildProcesses, EndWithTheirExitCodesAndLeaveTheirOutput) {
  const auto ends = run_children({shell("echo out; echo error >&2; exit 3", "a"), shell("echo b", "b")}, {});
  ASSERT_EQ(ends.ends.size(), 2U);
  EXPECT_EQ(ends.ends[0].exit_code, 3);
  EXPECT_FALSE(ends.ends[0].is_killed);
  EXPECT_EQ(ends.ends[1].exit_code, 0);
  EXPECT_EQ(ends.first_failed, 0);
  EXPECT_EQ(output("a"), "out\nerror\n");
  EXPECT_EQ(output("b"), "b\n");
}

TEST_F(ChildProcesses, EndBySignals) {
  EXPECT_EQ(run_children({shell("kill -TERM $$")}, {}).ends[0].exit_code, 128 + SIGTERM);
}

TEST_F(ChildProcesses, EndAsElsewhereWhereTheirSignalIsIgnored) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const auto ends = run_children({shell("exit 3")}, {.timeout = seconds(60)});
  EXPECT_EQ(ends.ends[0].exit_code, 3);
  EXPECT_EQ(std::signal(SIGCHLD, before), SIG_IGN) << "it is as it was";
}

TEST_F(ChildProcesses, HaveFailedWhereNobodyCanSayHowTheyEnded) {
  const auto before = std::signal(SIGCHLD, SIG_DFL);
  ChildEnds ends;
  const auto ignore_ends = [asked = 0]() mutable {
    std::signal(SIGCHLD, SIG_IGN);
    return ++asked > 2000;
  };
  EXPECT_LT(seconds_of([&] { ends = run_children({shell("sleep 0.2")}, {.is_cancelled = ignore_ends}); }),
            15);
  EXPECT_FALSE(ends.is_cancelled);
  EXPECT_EQ(ends.ends[0].exit_code, 1);
  EXPECT_EQ(ends.first_failed, 0);
  std::signal(SIGCHLD, before);
}

TEST_F(ChildProcesses, GetVariablesAndNoInput) {
  setenv("LOCKSTEP_TEST_TAKEN", "theirs", 1);
  auto command = shell("echo \"$LOCKSTEP_TEST_GIVEN ${LOCKSTEP_TEST_TAKEN-gone} $(cat | wc -c)\"");
  command.variables = {{"LOCKSTEP_TEST_GIVEN", "a b"}, {"LOCKSTEP_TEST_TAKEN", ""}};
  run_children({command}, {});
  unsetenv("LOCKSTEP_TEST_TAKEN");
  EXPECT_EQ(output(), "a b gone 0\n");
}

TEST_F(ChildProcesses, InheritTheDescriptorThatIsNamedAndNoOther) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  auto command = shell("echo through >&" + std::to_string(ends[1]) + "; test -e /proc/$$/fd/" +
                       std::to_string(ends[0]) + " && echo open || echo closed");
  command.inherited = ends[1];
  run_children({command}, {});
  char text[16] = {};
  EXPECT_EQ(read(ends[0], text, sizeof(text)), 8);
  EXPECT_STREQ(text, "through\n");
  EXPECT_EQ(output(), "closed\n");
  close(ends[0]);
  close(ends[1]);
}

TEST_F(ChildProcesses, AreKilledAfterTheTimeout) {
  ChildEnds ends;
  EXPECT_LT(seconds_of([&] { ends = run_children({shell("sleep 60")}, {.timeout = milliseconds(200)}); }),
            10);
  EXPECT_TRUE(ends.has_timed_out);
  EXPECT_TRUE(ends.ends[0].is_killed);
  EXPECT_EQ(ends.first_failed, -1) << "it did not fail by itself";
}

TEST_F(ChildProcesses, AreKilledSomeTimeAfterOneHasFailed) {
  ChildEnds ends;
  EXPECT_LT(seconds_of([&] {
              ends = run_children(
                  {shell("sleep 60", "a"), shell("exit 7", "b"), shell("sleep 0.2; exit 5", "c")},
                  {.grace = seconds(1)});
            }),
            20);
  EXPECT_FALSE(ends.has_timed_out);
  EXPECT_TRUE(ends.ends[0].is_killed);
  EXPECT_EQ(ends.ends[1].exit_code, 7);
  EXPECT_EQ(ends.ends[2].exit_code, 5) << "within the grace it ends by itself";
  EXPECT_FALSE(ends.ends[2].is_killed);
  EXPECT_EQ(ends.first_failed, 1);
}

TEST_F(ChildProcesses, AreKilledWhenTheCallIsCancelled) {
  ChildEnds ends;
  const auto is_cancelled = [this] { return exists("started"); };
  auto command =
      shell("touch " + folder_.path() + "/started; sleep 60; touch " + folder_.path() + "/survived");
  EXPECT_LT(seconds_of([&] { ends = run_children({command}, {.is_cancelled = is_cancelled}); }), 20);
  EXPECT_TRUE(ends.is_cancelled);
  EXPECT_TRUE(ends.ends[0].is_killed);
  EXPECT_FALSE(exists("survived"));
}

TEST_F(ChildProcesses, EndWithTheirParentWhateverEndsThat) {
  const std::string file = folder_.path() + "/child";
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    // exec keeps the process's id, which is used to find it below.
    run_children({shell("echo $$ > " + file + ".part; mv " + file + ".part " + file + "; exec sleep 60")},
                 {});
    _exit(0);
  }
  pid_t child = 0;
  for (int i = 0; i < 1000 && child == 0; ++i) {
    std::ifstream(file) >> child;
    usleep(10000);
  }
  ASSERT_GT(child, 0);
  ASSERT_EQ(kill(child, 0), 0);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  // The process that adopts orphans may leave the ended child as a zombie.
  const auto is_alive = [&] {
    std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
    std::string id, name, state;
    return static_cast<bool>(stat >> id >> name >> state) && state != "Z";
  };
  for (int i = 0; i < 500 && is_alive(); ++i) usleep(10000);
  EXPECT_FALSE(is_alive());
}

TEST_F(ChildProcesses, SayThatTheirProgramCannotBeStarted) {
  const auto ends =
      run_children({{.arguments = {folder_.path() + "/none"}, .output = folder_.path() + "/output"}}, {});
  EXPECT_EQ(ends.ends[0].exit_code, 127);
  EXPECT_EQ(output(), "the program could not be started\n");
}

}  // namespace
}  // namespace lockstep::apps
