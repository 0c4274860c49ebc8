#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/pipeline/pipeline_check.h"
#include "lockstep/strategies/pipeline/pipeline_runner.h"
#include "lockstep/strategies/pipeline/pipeline_schedule.h"
#include "lockstep/tests/support/sanitizer.h"

namespace lockstep {
namespace {

using Op = PipelineOp;

/// The pipeline hangs, or a rank has not got what it is to work on.
struct PipelineIsBroken {};

/// Bounded queues between stages. Knows exactly when all ranks that still run wait for each other.
class TestChannels {
 public:
  TestChannels(int ranks, int buffers) : num_running_(ranks), buffers_(static_cast<size_t>(buffers)) {}

  void send(int channel, uint64_t value) {
    std::unique_lock lock(mutex_);
    auto& queue = queues_[channel];
    wait(lock, [&] { return queue.size() < buffers_; });
    queue.push_back(value);
    changed_.notify_all();
  }

  uint64_t receive(int channel) {
    std::unique_lock lock(mutex_);
    auto& queue = queues_[channel];
    wait(lock, [&] { return !queue.empty(); });
    const uint64_t value = queue.front();
    queue.pop_front();
    changed_.notify_all();
    return value;
  }

  /// Tells that a rank has ended.
  void leave() {
    const std::lock_guard lock(mutex_);
    --num_running_;
    look_for_hang();
  }

  bool has_hung() const { return has_hung_; }
  bool are_empty() const {
    return std::all_of(queues_.begin(), queues_.end(),
                       [](const auto& queue) { return queue.second.empty(); });
  }

 private:
  template <typename Ready>
  void wait(std::unique_lock<std::mutex>& lock, const Ready& is_ready) {
    if (is_ready()) return;
    const std::function<bool()> ready = is_ready;
    waiting_.insert(&ready);
    look_for_hang();
    changed_.wait(lock, [&] { return has_hung_ || is_ready(); });
    waiting_.erase(&ready);
    if (has_hung_) throw PipelineIsBroken{};
  }

  void look_for_hang() {
    has_hung_ =
        has_hung_ || (num_running_ > 0 && static_cast<int>(waiting_.size()) == num_running_ &&
                      std::none_of(waiting_.begin(), waiting_.end(), [](auto* ready) { return (*ready)(); }));
    if (has_hung_) changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int num_running_;
  const size_t buffers_;
  std::map<int, std::deque<uint64_t>> queues_;
  std::set<const std::function<bool()>*> waiting_;
  bool has_hung_ = false;
};

uint64_t mixed(uint64_t value, int stage, int half) {
  value = (value + static_cast<uint64_t>(stage * 2 + half) + 1) * 0x9e3779b97f4a7c15U;
  return value ^ (value >> 29);
}

/// The numbers that stages compute one after the other.
uint64_t expected_activation(int stage, int micro_batch) {
  uint64_t value = static_cast<uint64_t>(micro_batch);
  for (int at = 0; at <= stage; ++at) value = mixed(value, at, 0);
  return value;
}
uint64_t expected_gradient(int stage, int num_stages, int micro_batch) {
  uint64_t value = expected_activation(num_stages - 1, micro_batch);
  for (int at = num_stages - 1; at >= stage; --at) value = mixed(value, at, 1);
  return value;
}

/// Stages that compute numbers, so that a wrong or a missing one shows in the results.
class NumberWork : public PipelineWork {
 public:
  using Key = std::pair<int, int>;

  NumberWork(const PipelineSchedule& schedule, int rank, TestChannels& channels)
      : schedule_(schedule), rank_(rank), channels_(channels) {}

  void forward(int stage, int micro_batch) override {
    check_place(stage, micro_batch);
    const uint64_t input =
        stage == 0 ? static_cast<uint64_t>(micro_batch) : taken(inputs_, stage, micro_batch);
    const uint64_t result = mixed(input, stage, 0);
    set_once(results_, {stage, micro_batch}, result);
    if (stage + 1 == schedule_.num_stages()) set_once(incoming_gradients_, {stage, micro_batch}, result);
    if (stage + 1 < schedule_.num_stages() && is_own(stage + 1)) inputs_[{stage + 1, micro_batch}] = result;
  }

  void backward(int stage, int micro_batch) override {
    backward_inputs(stage, micro_batch);
    backward_weights(stage, micro_batch);
  }

  void backward_inputs(int stage, int micro_batch) override {
    check_place(stage, micro_batch);
    if (!results_.contains({stage, micro_batch})) throw PipelineIsBroken{};
    const uint64_t gradient = mixed(taken(incoming_gradients_, stage, micro_batch), stage, 1);
    set_once(gradients_, {stage, micro_batch}, gradient);
    if (stage > 0 && is_own(stage - 1)) incoming_gradients_[{stage - 1, micro_batch}] = gradient;
  }

  void backward_weights(int stage, int micro_batch) override {
    check_place(stage, micro_batch);
    if (!gradients_.contains({stage, micro_batch})) throw PipelineIsBroken{};
    set_once(weights_, {stage, micro_batch}, 1);
  }

  void send_activation(int stage, int micro_batch) override {
    check_place(stage, micro_batch);
    if (stage + 1 == schedule_.num_stages() || is_own(stage + 1)) throw PipelineIsBroken{};
    set_once(sent_, {2 * stage, micro_batch}, 1);
    channels_.send(2 * stage, taken(results_, stage, micro_batch));
  }

  void receive_activation(int stage, int micro_batch) override {
    check_place(stage, micro_batch);
    if (stage == 0 || is_own(stage - 1)) throw PipelineIsBroken{};
    set_once(inputs_, {stage, micro_batch}, channels_.receive(2 * (stage - 1)));
  }

  void send_gradient(int stage, int micro_batch) override {
    check_place(stage, micro_batch);
    if (stage == 0 || is_own(stage - 1)) throw PipelineIsBroken{};
    set_once(sent_, {2 * stage - 1, micro_batch}, 1);
    channels_.send(2 * stage - 1, taken(gradients_, stage, micro_batch));
  }

  void receive_gradient(int stage, int micro_batch) override {
    check_place(stage, micro_batch);
    if (stage + 1 == schedule_.num_stages() || is_own(stage + 1)) throw PipelineIsBroken{};
    set_once(incoming_gradients_, {stage, micro_batch}, channels_.receive(2 * stage + 1));
  }

  bool has_gone_backward() const { return !gradients_.empty() || !weights_.empty(); }

  /// Whether each of this rank's stages has computed the right numbers for each micro-batch.
  bool is_complete(bool goes_backward) const {
    for (int stage = 0; stage < schedule_.num_stages(); ++stage) {
      if (!is_own(stage)) continue;
      for (int micro_batch = 0; micro_batch < schedule_.num_micro_batches; ++micro_batch) {
        const Key key{stage, micro_batch};
        const auto result = results_.find(key);
        if (result == results_.end() || result->second != expected_activation(stage, micro_batch))
          return false;
        if (!goes_backward) continue;
        const auto gradient = gradients_.find(key);
        if (gradient == gradients_.end() ||
            gradient->second != expected_gradient(stage, schedule_.num_stages(), micro_batch))
          return false;
        if (!weights_.contains(key)) return false;
      }
    }
    return true;
  }

 private:
  bool is_own(int stage) const { return schedule_.rank_of_stage[static_cast<size_t>(stage)] == rank_; }

  void check_place(int stage, int micro_batch) const {
    if (stage < 0 || stage >= schedule_.num_stages() || !is_own(stage) || micro_batch < 0 ||
        micro_batch >= schedule_.num_micro_batches)
      throw PipelineIsBroken{};
  }
  static uint64_t taken(const std::map<Key, uint64_t>& values, int stage, int micro_batch) {
    const auto found = values.find({stage, micro_batch});
    if (found == values.end()) throw PipelineIsBroken{};
    return found->second;
  }
  /// Work that is done twice would count twice.
  static void set_once(std::map<Key, uint64_t>& values, const Key& key, uint64_t value) {
    if (!values.emplace(key, value).second) throw PipelineIsBroken{};
  }

  const PipelineSchedule& schedule_;
  const int rank_;
  TestChannels& channels_;
  std::map<Key, uint64_t> inputs_, results_, incoming_gradients_, gradients_, weights_, sent_;
};

/// Runs the schedule on threads, and returns whether it came to its end with the right numbers.
bool runs(const PipelineSchedule& schedule, int buffers) {
  const int ranks = schedule.num_ranks();
  for (const int rank : schedule.rank_of_stage)
    if (rank < 0 || rank >= ranks) return false;
  TestChannels channels(ranks, buffers);
  std::deque<NumberWork> works;
  for (int rank = 0; rank < ranks; ++rank) works.emplace_back(schedule, rank, channels);
  std::atomic<bool> is_broken = false;
  std::vector<std::thread> threads;
  const auto start = std::chrono::steady_clock::now();
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run_pipeline_rank(schedule, rank, works[static_cast<size_t>(rank)], start);
      } catch (const PipelineIsBroken&) {
        is_broken = true;
      }
      channels.leave();
    });
  }
  for (auto& thread : threads) thread.join();
  const bool goes_backward =
      std::any_of(works.begin(), works.end(), [](const auto& work) { return work.has_gone_backward(); });
  return !is_broken && !channels.has_hung() && channels.are_empty() &&
         std::all_of(works.begin(), works.end(),
                     [&](const auto& work) { return work.is_complete(goes_backward); });
}

bool is_accepted(const PipelineSchedule& schedule, int buffers) {
  try {
    check_pipeline_schedule(schedule, {.buffers = buffers});
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

class RandomSchedules {
 public:
  explicit RandomSchedules(uint32_t seed) : random_(seed) {}

  int below(size_t count) { return static_cast<int>(random_() % count); }

  PipelineSchedule good() {
    const int ranks = 1 + below(4);
    const int micro_batches = 1 + below(5);
    switch (below(5)) {
      case 0:
        return gpipe_schedule(ranks, micro_batches);
      case 1:
        return one_forward_one_backward_schedule(ranks, micro_batches);
      case 2:
        return interleaved_schedule(ranks, 1 + below(3), ranks * (1 + below(2)));
      case 3:
        return zero_bubble_schedule(ranks, micro_batches);
      default:
        return zero_bubble_v_schedule(ranks, micro_batches);
    }
  }

  /// Computations in an order in which each rank has its own results before it needs them.
  PipelineSchedule random() {
    PipelineSchedule schedule{"random", 1 + below(3), {}, {}};
    const int ranks = 1 + below(3);
    const int stages = ranks + below(3);
    for (int stage = 0; stage < stages; ++stage)
      schedule.rank_of_stage.push_back(below(static_cast<size_t>(ranks)));
    schedule.actions.resize(static_cast<size_t>(ranks));
    const bool in_halves = below(2) == 0;
    const bool in_order = below(2) == 0;
    for (int rank = 0; rank < ranks; ++rank) add_computations(schedule, rank, in_halves, in_order);
    return with_transfers(schedule);
  }

  /// Changes one thing or a few.
  PipelineSchedule mutated(PipelineSchedule schedule) {
    for (int i = 1 + below(2); i > 0; --i) mutate(schedule);
    return schedule;
  }

 private:
  void add_computations(PipelineSchedule& schedule, int rank, bool in_halves, bool in_order) {
    std::vector<PipelineAction> left;
    for (int micro_batch = 0; micro_batch < schedule.num_micro_batches; ++micro_batch) {
      for (int stage = 0; stage < schedule.num_stages(); ++stage) {
        if (schedule.rank_of_stage[static_cast<size_t>(stage)] == rank)
          left.push_back({Op::kForward, stage, micro_batch});
      }
    }
    auto& actions = schedule.actions[static_cast<size_t>(rank)];
    while (!left.empty()) {
      // Half of the schedules take each stage's micro-batches in order, so that more of them can run.
      size_t next = static_cast<size_t>(below(left.size()));
      for (size_t i = 0; in_order && i < left.size(); ++i) {
        if (left[i].op == left[next].op && left[i].stage == left[next].stage &&
            left[i].micro_batch < left[next].micro_batch)
          next = i;
      }
      const auto action = left[next];
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(next));
      actions.push_back(action);
      const Op back = in_halves ? Op::kBackwardInputs : Op::kBackward;
      if (action.op == Op::kForward) left.push_back({back, action.stage, action.micro_batch});
      if (action.op == Op::kBackwardInputs)
        left.push_back({Op::kBackwardWeights, action.stage, action.micro_batch});
    }
  }

  void mutate(PipelineSchedule& schedule) {
    auto& actions = schedule.actions[static_cast<size_t>(below(schedule.actions.size()))];
    if (actions.empty()) return;
    const auto place = [&] { return actions.begin() + below(actions.size()); };
    const auto at = place();
    switch (below(9)) {
      case 0:
        std::iter_swap(at, place());
        break;
      case 1:
      case 2:
        if (at + 1 != actions.end()) std::iter_swap(at, at + 1);
        break;
      case 3:
        actions.erase(at);
        break;
      case 4:
        actions.insert(place(), PipelineAction(*at));
        break;
      case 5:
        at->micro_batch = below(static_cast<size_t>(schedule.num_micro_batches + 1));
        break;
      case 6:
        at->stage = below(schedule.rank_of_stage.size() + 1);
        break;
      case 7: {
        const auto action = *at;
        actions.erase(at);
        actions.insert(actions.begin() + below(actions.size() + 1), action);
        break;
      }
      default:
        at->op = static_cast<Op>(below(8));
        break;
    }
  }

  std::mt19937 random_;
};

constexpr int kNumSchedules = few_if_sanitized(10'000, 1000);

/// The checker is right about a schedule if threads that run it agree.
TEST(CheckPipelineSchedule, AcceptsExactlyWhatRunsToItsEndAndLosesNothing) {
  RandomSchedules schedules(20'261'127);
  std::array<int, 2> counts{};
  for (int i = 0; i < kNumSchedules; ++i) {
    const auto schedule = i % 2 == 0 ? schedules.mutated(schedules.good()) : schedules.random();
    const int buffers = 1 + schedules.below(3);
    const bool accepts = is_accepted(schedule, buffers);
    ++counts[accepts ? 1 : 0];
    std::string text;
    for (const auto& rank : schedule.actions) {
      for (const auto& action : rank) text += describe(action) + ", ";
      text += '\n';
    }
    ASSERT_EQ(runs(schedule, buffers), accepts) << "number " << i << ", " << buffers << " buffers:\n" << text;
  }
  // Otherwise one of the two answers would hardly be tested.
  EXPECT_GT(counts[0], kNumSchedules / 10);
  EXPECT_GT(counts[1], kNumSchedules / 10);
}

TEST(RunPipelineRank, RunsEverySchedule) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
    for (const int ranks : {1, 2, 4}) EXPECT_TRUE(runs(make_pipeline_schedule(name, ranks, 8), 1)) << name;
  }
  EXPECT_TRUE(runs(forward_schedule({0, 1, 1, 0}, 5), 1));
}

TEST(RunPipelineRank, TellsWhenEachActionBeganAndEnded) {
  const auto schedule = one_forward_one_backward_schedule(1, 3);
  TestChannels channels(1, 1);
  NumberWork work(schedule, 0, channels);
  const auto done = run_pipeline_rank(schedule, 0, work, std::chrono::steady_clock::now());
  ASSERT_EQ(done.size(), 6);
  double before = 0;
  for (size_t i = 0; i < done.size(); ++i) {
    EXPECT_EQ(done[i].action, schedule.actions[0][i]);
    EXPECT_LE(before, done[i].begin);
    EXPECT_LE(done[i].begin, done[i].end);
    before = done[i].end;
  }
}

TEST(RunPipelineRank, RefusesARankThatDoesNotExist) {
  const auto schedule = gpipe_schedule(2, 1);
  TestChannels channels(1, 1);
  NumberWork work(schedule, 0, channels);
  EXPECT_THROW(run_pipeline_rank(schedule, 2, work, {}), InvalidArgument);
  EXPECT_THROW(run_pipeline_rank(schedule, -1, work, {}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
