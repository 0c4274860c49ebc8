// Measures the constants of LinkCosts between two processes of this machine. Needs no LibTorch, so that it
// can be copied to any machine by itself.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/benchmarks/run_program.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/measurement/markdown_table.h"
#include "lockstep/runtime/base/net/stream_socket.h"
#include "lockstep/runtime/exchange/exchange_engine.h"
#include "lockstep/runtime/exchange/link_hub.h"
#include "lockstep/runtime/exchange/plan_costs.h"

namespace lockstep::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::minutes kTimeout{2};
constexpr int kRounds = 201;
constexpr int kManyMessages = 64;
constexpr int64_t kShortBytes = 8;
constexpr int64_t kLongBytes = int64_t{4} << 20;

void add_floats(uint8_t* into, const uint8_t* from, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    std::array<float, 2> values{};
    std::memcpy(&values[0], into + i * sizeof(float), sizeof(float));
    std::memcpy(&values[1], from + i * sizeof(float), sizeof(float));
    values[0] += values[1];
    std::memcpy(into + i * sizeof(float), &values[0], sizeof(float));
  }
}

/// One of two ranks that send each other the same messages.
class Rank {
 public:
  Rank(int rank, int socket, bool uses_shared_memory)
      : rank_(rank),
        hub_({.rank = rank,
              .token = JobToken::from_text("benchmark"),
              .host = "127.0.0.1",
              .uses_shared_memory = uses_shared_memory}),
        engine_({.rank = rank, .size = 2, .connect = [this](int peer, auto deadline) {
                   return hub_.connect(peer, 0, deadline);
                 }}) {
    const auto own = hub_.address();
    const std::string text = fmt::format("{} {}\n", own.port, own.local_name);
    if (write(socket, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      throw std::runtime_error("cannot tell the other process this one's address");
    std::string other;
    for (char c = 0; read(socket, &c, 1) == 1 && c != '\n';) other += c;
    const LinkAddress peer{"127.0.0.1", std::stoi(other), other.substr(other.find(' ') + 1)};
    hub_.set_peers(rank == 0 ? std::vector{own, peer} : std::vector{peer, own});
  }

  /// Returns the mean time of a round in which both ranks send each other a message.
  double seconds_of(int64_t bytes, bool is_added) {
    ExchangePlan plan{.rank = rank_, .size = 2, .rounds = {{}}};
    plan.rounds[0] = {{{1 - rank_, {{0, 1}}}}, {{1 - rank_, {{0, 1}}, is_added}}, {}};
    return seconds_of(plan, {bytes});
  }

  /// Returns the mean time in which rank 0 sends `num_messages` short ones, one after another, and rank 1 one
  /// answer to all of them.
  double seconds_of_stream(int num_messages) {
    ExchangePlan plan{.rank = rank_, .size = 2};
    for (int i = 0; i <= num_messages; ++i) {
      const bool is_sender = (i < num_messages) == (rank_ == 0);
      plan.rounds.emplace_back();
      if (is_sender) plan.rounds.back().sends = {{1 - rank_, {{0, 1}}}};
      if (!is_sender) plan.rounds.back().receives = {{1 - rank_, {{0, 1}}}};
    }
    return seconds_of(plan, {kShortBytes});
  }

  /// Returns the mean time of a round with one short message, after which each rank adds `bytes` to others.
  double seconds_of_step(int64_t bytes) {
    ExchangePlan plan{.rank = rank_, .size = 2, .num_blocks = 3, .rounds = {{}}};
    plan.rounds[0] = {{{1 - rank_, {{2, 1}}}}, {{1 - rank_, {{2, 1}}}}, {{0, 1, /*is_added=*/true}}};
    return seconds_of(plan, {bytes, bytes, kShortBytes});
  }

 private:
  double seconds_of(const ExchangePlan& plan, const std::vector<int64_t>& block_bytes) {
    int64_t bytes = 0;
    for (const int64_t size : block_bytes) bytes += size;
    memory_.resize(static_cast<size_t>(bytes));
    ExchangeCall call{.description = "all_reduce sum of float32",
                      .plan = &plan,
                      .combine = add_floats,
                      .element_bytes = sizeof(float)};
    auto left = std::span(memory_);
    for (const int64_t size : block_bytes) {
      call.blocks.push_back(left.first(static_cast<size_t>(size)));
      left = left.subspan(static_cast<size_t>(size));
    }
    const int repetitions = bytes < (1 << 16) ? 50 : 2;
    const auto run = [&] {
      call.sequence = sequence_++;
      engine_.run(call, Clock::now() + kTimeout);
    };
    run();  // touches the memory and makes the ranks begin together
    const auto begin = Clock::now();
    for (int i = 0; i < repetitions; ++i) run();
    return std::chrono::duration<double>(Clock::now() - begin).count() / repetitions;
  }

  const int rank_;
  LinkHub hub_;
  ExchangeEngine engine_;
  std::vector<uint8_t> memory_;
  uint64_t sequence_ = 0;
};

/// Both ranks call it.
LinkCosts measure(Rank& rank) {
  std::vector<double> one, stream_of_one, stream_of_many, replaced, added, step;
  for (int round = 0; round < kRounds; ++round) {
    one.push_back(rank.seconds_of(kShortBytes, false));
    stream_of_one.push_back(rank.seconds_of_stream(1));
    stream_of_many.push_back(rank.seconds_of_stream(kManyMessages));
    replaced.push_back(rank.seconds_of(kLongBytes, false));
    added.push_back(rank.seconds_of(kLongBytes, true));
    step.push_back(rank.seconds_of_step(kLongBytes));
  }
  // Disturbances only make a round longer.
  const auto least = [](const std::vector<double>& seconds) {
    return *std::min_element(seconds.begin(), seconds.end());
  };
  const double overhead = (least(stream_of_many) - least(stream_of_one)) / (kManyMessages - 1);
  return {.seconds_per_message = least(one) - overhead,
          .seconds_per_byte = (least(replaced) - least(one)) / kLongBytes,
          .add_seconds_per_byte = (least(added) - least(replaced)) / kLongBytes,
          .overhead_seconds = overhead,
          .step_seconds_per_byte = (least(step) - least(one)) / kLongBytes};
}

LinkCosts measure_between_processes(bool uses_shared_memory) {
  std::array<int, 2> sockets{};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()) != 0)
    throw std::runtime_error("cannot make a pair of sockets");
  const pid_t child = fork();  // before anything starts a thread
  if (child < 0) throw std::runtime_error("cannot start a process");
  const auto run = [&](int number) {
    Rank rank(number, sockets[static_cast<size_t>(number)], uses_shared_memory);
    return measure(rank);
  };
  if (child == 0) {
    _exit(run_program([&] {
      run(1);
      return 0;
    }));
  }
  const auto costs = run(0);
  int status = 0;
  waitpid(child, &status, 0);
  for (const int socket : sockets) close(socket);
  if (status != 0) throw std::runtime_error("the other process failed");
  return costs;
}

int run() {
  measurement::MarkdownTable table({"transport", "until a message arrives", "occupied by it", "a byte",
                                    "a byte added on arrival", "a byte added in memory"});
  for (const bool uses_shared_memory : {true, false}) {
    const auto costs = measure_between_processes(uses_shared_memory);
    const auto nanoseconds = [](double seconds) { return fmt::format("{:.3f} ns", seconds * 1e9); };
    table.add_row({uses_shared_memory ? "shared memory" : "TCP over loopback",
                   fmt::format("{:.2f} us", costs.seconds_per_message * 1e6),
                   fmt::format("{:.2f} us", costs.overhead_seconds * 1e6),
                   nanoseconds(costs.seconds_per_byte), nanoseconds(costs.add_seconds_per_byte),
                   nanoseconds(costs.step_seconds_per_byte)});
  }
  std::cout << measurement::today() << ", " << measurement::describe_machine() << ". The least of " << kRounds
            << " rounds.\n\n"
            << table;
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char**) {
  if (argc > 1) {
    std::cout
        << "link_costs: measures what a message between two processes of this machine costs, over shared\n"
           "memory and over TCP. Prints Markdown. It takes no flags.\n";
    return 0;
  }
  return lockstep::benchmarks::run_program(lockstep::benchmarks::run);
}
