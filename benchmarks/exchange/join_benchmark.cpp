// join_benchmark [number of processes]...: how long the processes of a job on this machine need to find each
// other, from the start of the first to the return of the last, and worker 0's processor time meanwhile. The
// other processes share the work of one machine here. On machines of their own, they wait for worker 0, whose
// store serves them all: its processor time is what a job of that size takes there, besides a few round
// trips. Prints Markdown.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iomanip>
#include <iostream>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/benchmarks/run_program.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/workers/worker_group.h"

namespace lockstep::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;
constexpr char kToken[] = "a token of a benchmark, which protects nothing of value";

/// What the processes share.
struct Board {
  std::atomic<int> num_ready{0};
  std::atomic<int> num_joined{0};
  std::atomic<bool> is_open{false};
  std::atomic<int64_t> last_ns{0};
  std::atomic<int64_t> coordinator_ns{0};  // worker 0's processor time
};

struct Times {
  double until_joined = 0;  // seconds, as the other one
  double of_coordinator = 0;
};

Board& make_board() {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory is left");
  return *new (memory) Board();
}

int64_t now_ns() {
  return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
}

int64_t processor_time_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) {
    return (int64_t{time.tv_sec} * 1'000'000 + time.tv_usec) * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

/// Returns once all have joined, since worker 0's store serves them until then.
void join(Board& board, const JoinOptions& options) {
  ++board.num_ready;
  while (!board.is_open) usleep(500);
  const int64_t begin = processor_time_ns();
  const auto group = WorkerGroup::join(options);
  int64_t last = board.last_ns;
  const int64_t now = now_ns();
  while (last < now && !board.last_ns.compare_exchange_weak(last, now)) continue;
  ++board.num_joined;
  while (board.num_joined < options.size) usleep(500);
  if (options.rank == 0) board.coordinator_ns = processor_time_ns() - begin;
}

/// Forks before anything starts a thread.
Times join_once(int size) {
  Board& board = make_board();
  TcpListener listener("127.0.0.1", 0);
  JoinOptions options{
      .size = size, .master_host = "127.0.0.1", .master_port = listener.port(), .token = kToken};
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("cannot start a process");
    if (child == 0) {
      options.rank = rank;
      if (rank == 0) options.listening_socket = listener.descriptor();
      _exit(run_program([&] {
        join(board, options);
        return 0;
      }));
    }
    children.push_back(child);
  }
  while (board.num_ready < size) usleep(500);
  const int64_t begin = now_ns();
  board.is_open = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) throw std::runtime_error("a process did not join");
  }
  return {.until_joined = static_cast<double>(board.last_ns - begin) * 1e-9,
          .of_coordinator = static_cast<double>(board.coordinator_ns) * 1e-9};
}

int run(std::span<char*> arguments) {
  std::vector<int> sizes;
  for (const char* argument : arguments) sizes.push_back(std::stoi(argument));
  if (sizes.empty()) sizes = {2, 8, 64};
  std::cout << measurement::today() << ", " << measurement::describe_machine() << ". Seconds of " << kRounds
            << " rounds.\n\n| processes | until all have joined, median | slowest | processor time of worker "
               "0, median "
               "|\n|---|---|---|---|\n";
  for (const int size : sizes) {
    std::vector<double> until_joined, of_coordinator;
    for (int round = 0; round < kRounds; ++round) {
      const auto times = join_once(size);
      until_joined.push_back(times.until_joined);
      of_coordinator.push_back(times.of_coordinator);
    }
    std::sort(until_joined.begin(), until_joined.end());
    std::sort(of_coordinator.begin(), of_coordinator.end());
    std::cout << "| " << size << " | " << std::setprecision(3) << until_joined[kRounds / 2] << " | "
              << until_joined.back() << " | " << of_coordinator[kRounds / 2] << " |\n"
              << std::flush;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program(
      [&] { return lockstep::benchmarks::run(std::span(argv, static_cast<size_t>(argc)).subspan(1)); });
}
