#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/workers/heartbeat.h"

extern char** environ;

namespace lockstep {
namespace {

using ProcessClock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::StartsWith;

// Only a failing test waits this long.
constexpr seconds kProcessPatience{20};

const JobToken& processes_token() {
  static const JobToken token = JobToken::random();
  return token;
}

std::string process_name(int rank) {
  return "worker " + std::to_string(rank) + " (127.0.0.1)";
}

/// A heartbeat_peer process, killed on destruction.
class PeerProcess {
 public:
  PeerProcess(int rank, int world_size, milliseconds lost_after = milliseconds(3500)) : rank_(rank) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0)
      throw std::runtime_error("pipe2");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::vector<std::string> texts = {LOCKSTEP_HEARTBEAT_PEER,
                                      std::to_string(rank),
                                      std::to_string(world_size),
                                      processes_token().hex(),
                                      "3",
                                      std::to_string(lost_after.count())};
    std::vector<char*> arguments;
    arguments.reserve(texts.size() + 1);
    for (std::string& text : texts) arguments.push_back(text.data());
    arguments.push_back(nullptr);
    const int code =
        posix_spawn(&process_, LOCKSTEP_HEARTBEAT_PEER, &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    input_ = in[1];
    output_ = out[0];
    if (code != 0) throw std::runtime_error("cannot start " LOCKSTEP_HEARTBEAT_PEER);
    const std::string line = read_line();
    if (!line.starts_with("port ")) throw std::runtime_error("expected a port, but got '" + line + "'");
    size_t end = 0;
    port_ = std::stoi(line.substr(5), &end);
    session_ = line.substr(5 + end + 1);
  }
  ~PeerProcess() {
    if (process_ != 0) {
      send_signal(SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    close(input_);
    close(output_);
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  Peer peer() const {
    return {
        .rank = rank_, .name = process_name(rank_), .host = "127.0.0.1", .port = port_, .session = session_};
  }

  void start(const std::vector<Peer>& peers) {
    for (const Peer& peer : peers) {
      write_line("peer " + std::to_string(peer.rank) + " " + std::to_string(peer.port) + " " + peer.session +
                 " " + peer.name);
    }
    write_line("start");
  }

  void send_signal(int signal) const { kill(process_, signal); }

  /// Ends the process in an orderly way and returns its exit status.
  int stop() {
    write_line("stop");
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = 0;
    return status;
  }

  /// The next line that the process writes; empty if none comes before `deadline`.
  std::string read_line(ProcessClock::time_point deadline = ProcessClock::now() + kProcessPatience) {
    std::string line;
    while (true) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - ProcessClock::now());
      pollfd watched{.fd = output_, .events = POLLIN, .revents = 0};
      if (poll(&watched, 1, std::max(0, static_cast<int>(left.count()))) <= 0) return "";
      char character = 0;
      if (read(output_, &character, 1) != 1) return "";
      if (character == '\n') return line;
      line += character;
    }
  }

 private:
  void write_line(const std::string& line) const {
    const std::string text = line + "\n";
    if (write(input_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw std::runtime_error("cannot write to the peer");
    }
  }

  const int rank_;
  pid_t process_ = 0;
  int input_ = -1;
  int output_ = -1;
  int port_ = 0;
  std::string session_;
};

/// The heartbeat of the test's own process, and the first loss that it reports.
class OwnHeartbeat {
 public:
  OwnHeartbeat(int rank, int world_size, milliseconds lost_after = milliseconds(3500))
      : rank_(rank),
        heartbeat_({.rank = rank,
                    .world_size = world_size,
                    .token = processes_token(),
                    .incarnation = 3,
                    .lost_after = lost_after},
                   {}) {}

  Peer peer() const {
    return {.rank = rank_,
            .name = process_name(rank_),
            .host = "127.0.0.1",
            .port = heartbeat_.port(),
            .session = heartbeat_.session()};
  }
  void start(std::vector<Peer> peers) { heartbeat_.start(std::move(peers)); }

  /// Waits for `count` messages, so that every peer was heard.
  bool hears(uint64_t count) const {
    const auto deadline = ProcessClock::now() + kProcessPatience;
    while (heartbeat_.counters().received < count && ProcessClock::now() < deadline) pause();
    return heartbeat_.counters().received >= count;
  }

  /// The first loss in heartbeat_peer's format; empty if no peer is lost before `deadline`.
  std::string loss_before(ProcessClock::time_point deadline) const {
    while (!heartbeat_.lost()) {
      if (ProcessClock::now() >= deadline) return "";
      pause();
    }
    const LostPeer lost = *heartbeat_.lost();
    return "lost " + std::to_string(lost.rank) + "|" + lost.name + "|" + lost.reason;
  }

 private:
  static void pause() { std::this_thread::sleep_for(milliseconds(2)); }

  const int rank_;
  Heartbeat heartbeat_;
};

TEST(HeartbeatProcesses, NameAKilledWorkerWithinHalfASecond) {
  OwnHeartbeat hub(0, 3);
  PeerProcess first(1, 3);
  PeerProcess second(2, 3);
  first.start({hub.peer()});
  second.start({hub.peer(), first.peer()});
  hub.start({first.peer(), second.peer()});
  ASSERT_TRUE(hub.hears(8));

  const auto deadline = ProcessClock::now() + milliseconds(500);
  first.send_signal(SIGKILL);
  EXPECT_EQ(hub.loss_before(deadline), "lost 1|worker 1 (127.0.0.1)|its process ended");
  EXPECT_EQ(second.read_line(deadline), "lost 1|worker 1 (127.0.0.1)|its process ended");
}

TEST(HeartbeatProcesses, NameAKilledHubWithinHalfASecond) {
  PeerProcess hub(0, 3);
  OwnHeartbeat first(1, 3);
  PeerProcess second(2, 3);
  hub.start({first.peer(), second.peer()});
  first.start({hub.peer()});
  second.start({hub.peer()});
  ASSERT_TRUE(first.hears(5));

  const auto deadline = ProcessClock::now() + milliseconds(500);
  hub.send_signal(SIGKILL);
  EXPECT_EQ(first.loss_before(deadline), "lost 0|worker 0 (127.0.0.1)|its process ended");
  EXPECT_EQ(second.read_line(deadline), "lost 0|worker 0 (127.0.0.1)|its process ended");
}

TEST(HeartbeatProcesses, NameAStoppedWorkerWithinFiveSecondsAndFenceItOff) {
  OwnHeartbeat hub(0, 3);
  PeerProcess first(1, 3);
  PeerProcess second(2, 3);
  first.start({hub.peer()});
  second.start({hub.peer()});
  hub.start({first.peer(), second.peer()});
  ASSERT_TRUE(hub.hears(8));

  const auto begin = ProcessClock::now();
  first.send_signal(SIGSTOP);
  EXPECT_EQ(hub.loss_before(begin + seconds(5)), "lost 1|worker 1 (127.0.0.1)|no sign of life for 3.5 s");
  EXPECT_GT(ProcessClock::now() - begin, seconds(3)) << "not before";
  EXPECT_EQ(second.read_line(begin + seconds(5)), "lost 1|rank 1|no sign of life for 3.5 s");

  first.send_signal(SIGCONT);
  EXPECT_THAT(
      first.read_line(ProcessClock::now() + seconds(1)),
      StartsWith("lost 1|this process (rank 1)|given up by the others: this process did not run for 3."));
}

TEST(HeartbeatProcesses, FenceOffAStoppedHub) {
  constexpr milliseconds kLostAfter{1500};
  PeerProcess hub(0, 2, kLostAfter);
  OwnHeartbeat worker(1, 2, kLostAfter);
  hub.start({worker.peer()});
  worker.start({hub.peer()});
  ASSERT_TRUE(worker.hears(5));

  hub.send_signal(SIGSTOP);
  EXPECT_EQ(worker.loss_before(ProcessClock::now() + seconds(3)),
            "lost 0|worker 0 (127.0.0.1)|no sign of life for 1.5 s");
  hub.send_signal(SIGCONT);
  EXPECT_THAT(
      hub.read_line(ProcessClock::now() + seconds(1)),
      StartsWith("lost 0|this process (rank 0)|given up by the others: this process did not run for 1."));
}

TEST(HeartbeatProcesses, EndOnPurposeWithoutAlarm) {
  OwnHeartbeat hub(0, 2);
  PeerProcess worker(1, 2);
  worker.start({hub.peer()});
  hub.start({worker.peer()});
  ASSERT_TRUE(hub.hears(5));
  EXPECT_EQ(worker.stop(), 0);
  EXPECT_EQ(hub.loss_before(ProcessClock::now() + milliseconds(700)), "");
}

}  // namespace
}  // namespace lockstep
