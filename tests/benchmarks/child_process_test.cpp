#include "lockstep/benchmarks/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/benchmarks/remote_training.h"

namespace lockstep::benchmarks {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::ThrowsMessage;

Command shell(const std::string& script) {
  return {{"sh", "-c", script}, {}};
}

TEST(ChildProcess, AnswersLineByLine) {
  ChildProcess child({{"cat"}, {}});
  child.write_line("one");
  child.write_line("two");
  EXPECT_EQ(child.read_line(seconds(10)), "one");
  EXPECT_EQ(child.read_line(seconds(10)), "two");
}

TEST(ChildProcess, SeesTheEndOfItsInputBeforeItIsWaitedFor) {
  ChildProcess child(shell("cat > /dev/null; echo ended"));
  child.close_input();
  EXPECT_EQ(child.read_line(seconds(10)), "ended");
}

TEST(ChildProcess, HasOurEnvironmentWithTheChanges) {
  setenv("LOCKSTEP_TEST_KEPT", "kept", 1);
  setenv("LOCKSTEP_TEST_CHANGED", "old", 1);
  Command command = shell("echo $LOCKSTEP_TEST_KEPT $LOCKSTEP_TEST_CHANGED");
  command.environment = {{"LOCKSTEP_TEST_CHANGED", "new"}};
  EXPECT_EQ(ChildProcess(command).read_line(seconds(10)), "kept new");
}

TEST(ChildProcess, SaysThatItEndedOrKeptSilent) {
  ChildProcess ended(shell("exit 0"));
  EXPECT_THAT([&] { ended.read_line(seconds(10)); },
              ThrowsMessage<std::runtime_error>(HasSubstr("[sh] ended before it answered")));
  ChildProcess silent({{"cat"}, {}});
  EXPECT_THAT([&] { silent.read_line(seconds(0)); },
              ThrowsMessage<std::runtime_error>(HasSubstr("[cat] gave no answer within 0 s")));
}

TEST(ChildProcess, NamesAProgramThatDoesNotExist) {
  EXPECT_THAT(
      [] {
        ChildProcess({{"/no/such/program"}, {}});
      },
      ThrowsMessage<std::runtime_error>(HasSubstr("[/no/such/program]")));
}

TEST(RemoteTraining, ReadsWhatTheJobAnswers) {
  RemoteTraining job(
      shell("echo ready 42; while read line; do [ $line = peak_memory ] && echo 4096 || echo $line.5; done"));
  EXPECT_EQ(job.num_parameters(), 42);
  EXPECT_EQ(job.seconds_for(3), 3.5);
  EXPECT_EQ(job.peak_memory_bytes(), 4096);
}

TEST(RemoteTraining, CountsTheTimeToTheFirstStep) {
  const RemoteTraining job(shell("sleep 0.2; echo ready 1; read line"));
  EXPECT_GE(job.seconds_to_first_step(), 0.2);
}

TEST(RemoteTraining, RefusesAnAnswerThatIsNoNumber) {
  RemoteTraining job(shell("echo ready 1; read line; echo nonsense"));
  EXPECT_THAT([&] { job.seconds_for(1); }, ThrowsMessage<std::runtime_error>(HasSubstr("'nonsense'")));
}

}  // namespace
}  // namespace lockstep::benchmarks
