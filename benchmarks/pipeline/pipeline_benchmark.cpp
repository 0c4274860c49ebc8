#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/benchmarks/run_program.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/strategies/pipeline/pipeline_check.h"
#include "lockstep/strategies/pipeline/pipeline_runner.h"
#include "lockstep/strategies/pipeline/pipeline_stream.h"
#include "lockstep/strategies/pipeline/pipeline_timeline.h"

namespace lockstep::benchmarks {
namespace {

constexpr int kBuffers = 2;
constexpr int kRuns = 5;

/// Messages between the threads of a pipeline.
class SleepingChannels {
 public:
  /// Sends wait for messages to be received if there are `buffers` of them.
  explicit SleepingChannels(int buffers = kBuffers) : buffers_(buffers) {}
  void send(int channel) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return counts_[channel] < buffers_; });
    ++counts_[channel];
    changed_.notify_all();
  }
  void receive(int channel) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return counts_[channel] > 0; });
    --counts_[channel];
    changed_.notify_all();
  }

 private:
  const int buffers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, int> counts_;
};

/// Stages that sleep, so that there can be more of them than cores.
class SleepingWork : public PipelineWork {
 public:
  SleepingWork(const PipelineTimes& times, SleepingChannels& channels) : times_(times), channels_(channels) {}

  void forward(int stage, int /*micro_batch*/) override {
    most_alive_ = std::max(most_alive_, ++alive_);
    sleep(of(stage).forward);
  }
  void backward(int stage, int /*micro_batch*/) override {
    sleep(of(stage).backward_inputs + of(stage).backward_weights);
    --alive_;
  }
  void backward_inputs(int stage, int /*micro_batch*/) override { sleep(of(stage).backward_inputs); }
  void backward_weights(int stage, int /*micro_batch*/) override {
    sleep(of(stage).backward_weights);
    --alive_;
  }
  void send_activation(int stage, int /*micro_batch*/) override { channels_.send(2 * stage); }
  void receive_activation(int stage, int /*micro_batch*/) override { channels_.receive(2 * stage - 2); }
  void send_gradient(int stage, int /*micro_batch*/) override { channels_.send(2 * stage - 1); }
  void receive_gradient(int stage, int /*micro_batch*/) override { channels_.receive(2 * stage + 1); }

  int most_alive() const { return most_alive_; }

 private:
  const PipelineStageTimes& of(int stage) const { return times_.stages[static_cast<size_t>(stage)]; }
  static void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

  const PipelineTimes& times_;
  SleepingChannels& channels_;
  int alive_ = 0;
  int most_alive_ = 0;
};

struct Measured {
  PipelineTimeline timeline;
  std::vector<int> most_alive;
};

Measured run_once(const PipelineSchedule& schedule, const PipelineTimes& times) {
  Measured measured;
  measured.timeline.ranks.resize(schedule.actions.size());
  SleepingChannels channels;
  std::deque<SleepingWork> works;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) works.emplace_back(times, channels);
  const auto start = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
  std::vector<std::thread> threads;
  threads.reserve(works.size());
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      std::this_thread::sleep_until(start);
      const auto own = static_cast<size_t>(rank);
      measured.timeline.ranks[own] = run_pipeline_rank(schedule, rank, works[own], start);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& work : works) measured.most_alive.push_back(work.most_alive());
  return measured;
}

/// Returns the formula's share, or a dash if it does not hold for so few micro-batches.
std::string formula_of(const std::string& name, int ranks, int micro_batches, int stages_per_rank) {
  const double waits = ranks - 1;
  if (name == "zb-v") return micro_batches >= 2 * ranks - 1 ? "0.0000" : "-";
  const int parts = name == "interleaved" ? stages_per_rank : name == "zb-h1" ? 3 : 1;
  return fmt::format("{:.4f}", waits / (parts * micro_batches + waits));
}

void print_row(const std::string& name, int ranks, int micro_batches, double seconds) {
  constexpr int kStagesPerRank = 2;
  const auto schedule = make_pipeline_schedule(name, ranks, micro_batches, kStagesPerRank);
  const auto planned_alive = check_pipeline_schedule(schedule, {.buffers = kBuffers}).most_alive;
  // Each rank computes the same in all schedules.
  const double part = seconds * ranks / schedule.num_stages();
  PipelineTimes times = uniform_pipeline_times(schedule, part, 2 * part);
  times.buffers = kBuffers;
  std::vector<double> bubbles;
  std::vector<int> most_alive;
  for (int run = 0; run < kRuns; ++run) {
    const auto measured = run_once(schedule, times);
    bubbles.push_back(measured.timeline.bubble());
    most_alive = measured.most_alive;
  }
  if (most_alive != planned_alive)
    throw std::runtime_error("[pipeline_benchmark] " + name + " kept other activations than planned");
  std::sort(bubbles.begin(), bubbles.end());
  std::cout << fmt::format("| {} | {} | {} | {} | {:.4f} | {:.4f} ({:.4f} to {:.4f}) | {} |\n", name, ranks,
                           micro_batches, formula_of(name, ranks, micro_batches, kStagesPerRank),
                           simulate_pipeline(schedule, times).bubble(), bubbles[bubbles.size() / 2],
                           bubbles.front(), bubbles.back(), fmt::join(most_alive, ", "));
}

/// Lets each rank work in a thread of its own. Returns the seconds until all have finished.
double seconds_of_ranks(int ranks, const std::function<void(int rank)>& work) {
  const auto start = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::this_thread::sleep_until(start);
      work(rank);
    });
  }
  for (auto& thread : threads) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Goes forward through batches, each of which begins when all ranks have the result of the one before.
double seconds_drained(int ranks, const std::vector<int>& batches, const PipelineSchedule& schedule,
                       const PipelineTimes& times) {
  SleepingChannels channels;
  std::barrier all_have_the_result(ranks);
  const auto work = [&](int rank) {
    SleepingWork sleeping(times, channels);
    for (size_t batch = 0; batch < batches.size(); ++batch) {
      run_pipeline_rank(schedule, rank, sleeping, std::chrono::steady_clock::now());
      all_have_the_result.arrive_and_wait();
    }
  };
  return seconds_of_ranks(ranks, work);
}

double seconds_streamed(int ranks, const PipelineStream& stream, const PipelineTimes& times) {
  SleepingChannels channels;
  SleepingChannels results(std::numeric_limits<int>::max());
  const auto work = [&](int rank) {
    SleepingWork sleeping(times, channels);
    run_pipeline_stream_rank(stream, rank, sleeping, [&](size_t) {
      if (rank != stream.schedule.rank_of_stage.back()) return results.receive(rank);
      for (int other = 0; other < ranks; ++other)
        if (other != rank) results.send(other);
    });
  };
  return seconds_of_ranks(ranks, work);
}

std::string in_hundredths(std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  return fmt::format("{:.2f} ({:.2f} to {:.2f})", ratios[ratios.size() / 2], ratios.front(), ratios.back());
}

std::string in_slots(std::vector<double> seconds, double slot) {
  std::sort(seconds.begin(), seconds.end());
  return fmt::format("{:.1f} ({:.1f} to {:.1f})", seconds[seconds.size() / 2] / slot, seconds.front() / slot,
                     seconds.back() / slot);
}

void print_stream_row(int ranks, int micro_batches, int num_batches, double slot) {
  std::vector<int> rank_of_stage(static_cast<size_t>(ranks));
  std::iota(rank_of_stage.begin(), rank_of_stage.end(), 0);
  const std::vector<int> batches(static_cast<size_t>(num_batches), micro_batches);
  const auto schedule = forward_schedule(rank_of_stage, micro_batches);
  const auto stream = plan_pipeline_stream(rank_of_stage, batches);
  const PipelineTimes times = uniform_pipeline_times(schedule, slot, 0);
  std::vector<double> drained, streamed, ratios;
  for (int run = 0; run < kRuns; ++run) {
    drained.push_back(seconds_drained(ranks, batches, schedule, times));
    streamed.push_back(seconds_streamed(ranks, stream, times));
    ratios.push_back(drained.back() / streamed.back());
  }
  const int streamed_slots = num_batches * micro_batches + ranks - 1;
  const int drained_slots = num_batches * (micro_batches + ranks - 1);
  std::cout << fmt::format("| {} | {} | {} | {} | {} | {} | {} | {:.2f} | {} |\n", ranks, micro_batches,
                           num_batches, drained_slots, in_slots(drained, slot), streamed_slots,
                           in_slots(streamed, slot), static_cast<double>(drained_slots) / streamed_slots,
                           in_hundredths(ratios));
}

int run(int argc, char** argv) {
  double milliseconds = 20;
  if (argc == 3 && std::string_view(argv[1]) == "--milliseconds") {
    milliseconds = std::stod(argv[2]);
  } else if (argc != 1) {
    std::cout << "pipeline_benchmark [--milliseconds N]\n\n"
                 "Runs the schedules of pipelines on stages that sleep, and prints the shares of time that "
                 "ranks wait,\nand the times of batches that go forward alone, as Markdown.\nForward takes N "
                 "milliseconds (20) on each rank, and each half of backward as "
                 "long.\n";
    return argc == 2 && std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  if (!(milliseconds > 0)) throw std::invalid_argument("--milliseconds: expected a positive number");
  std::cout
      << fmt::format(
             "{}, {}. Stages sleep {} ms in forward; medians of {} runs, with the least and the most.\n\n",
             measurement::today(), measurement::describe_machine(), milliseconds, kRuns)
      << "| schedule | ranks | micro-batches | formula | planned | measured | activations kept by each rank "
         "|\n"
         "|---|---|---|---|---|---|---|\n";
  for (const int ranks : {2, 4}) {
    for (const int micro_batches : {4, 8}) {
      for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"})
        print_row(name, ranks, micro_batches, milliseconds / 1000);
    }
  }
  std::cout
      << "\nBatches that go forward alone, in times of a stage:\n\n"
         "| ranks | micro-batches | batches | n (m + p - 1) | drained | n m + p - 1 | streamed | planned "
         "ratio | measured ratio |\n"
         "|---|---|---|---|---|---|---|---|---|\n";
  for (const int ranks : {2, 4}) {
    for (const int micro_batches : {1, 4, 8}) print_stream_row(ranks, micro_batches, 8, milliseconds / 1000);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
