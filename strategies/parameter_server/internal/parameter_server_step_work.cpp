#include "lockstep/strategies/parameter_server/internal/parameter_server_step_work.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/intra_op_threads.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::max(0.0, std::chrono::duration<double>(end - begin).count());
}

/// For number_replicas(): a step has the same random numbers however it is cut into slots.
uint64_t seed_of_step(uint64_t seed, int64_t step) {
  return seed ^ (0xd1342543de82ef95ULL * (static_cast<uint64_t>(step) + 1));
}

int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(seconds * 1e9);
}

torch::Tensor encode_report(const StepReport& report) {
  const auto& [counts, times] = report;
  std::vector<int64_t> numbers{counts.num_repeated, counts.num_outdated, nanoseconds(times.computing),
                               nanoseconds(times.waiting), nanoseconds(times.idle)};
  for (const auto& [staleness, updates] : counts.staleness) {
    numbers.push_back(static_cast<int64_t>(staleness));
    numbers.push_back(updates);
  }
  return torch::tensor(numbers, torch::kLong);
}

}  // namespace

StepReport take_report(ClosureValues& values) {
  constexpr int64_t kBeforeStaleness = 5;
  const auto* tensor = values.empty() ? nullptr : std::get_if<torch::Tensor>(&values.back());
  if (tensor == nullptr || tensor->scalar_type() != torch::kLong || tensor->numel() < kBeforeStaleness)
    throw InvalidArgument(
        "[ParameterServerStrategy] expected a function of define_step(), but got one of another kind");
  const auto* numbers = tensor->const_data_ptr<int64_t>();
  const auto seconds = [&](int64_t place) { return static_cast<double>(numbers[place]) / 1e9; };
  StepReport report{.counts = {.num_repeated = numbers[0], .num_outdated = numbers[1]},
                    .times = {.computing = seconds(2), .waiting = seconds(3), .idle = seconds(4)}};
  for (int64_t i = kBeforeStaleness; i + 1 < tensor->numel(); i += 2)
    report.counts.staleness[static_cast<uint64_t>(numbers[i])] += numbers[i + 1];
  values.pop_back();
  return report;
}

void ParameterServerStrategy::StepWork::prepare() {
  TableLookups lookups;
  if (parts_.load) {
    batch_ = parts_.load(slot_);
    parts_.look_up(batch_.get(), lookups);
  }
  values_ = strategy_.variables_->read_ahead(lookups);
}

ClosureValues ParameterServerStrategy::StepWork::run() {
  const auto begin = Clock::now();
  const auto last = strategy_.last_ran_;
  auto& times = report_.times;
  const bool is_first_of_run = std::exchange(strategy_.last_run_, run_) != run_;
  times.idle = is_first_of_run ? 0 : seconds_between(last, given_);
  times.waiting = seconds_between(std::max(last, given_), begin);
  const double waited_before = strategy_.variables_->seconds_waited();
  auto results = run_alone();
  strategy_.last_ran_ = Clock::now();
  const double waited =
      (strategy_.variables_->seconds_waited() - waited_before) / strategy_.num_local_replicas();
  times.waiting += waited;
  times.computing = std::max(0.0, seconds_between(begin, strategy_.last_ran_) - waited);
  return results;
}

ClosureValues ParameterServerStrategy::StepWork::run_alone() {
  struct Current {
    ~Current() {
      strategy.work_ = nullptr;
      strategy.number_replicas(0, strategy.num_local_replicas(), strategy.seed_);
    }
    ParameterServerStrategy& strategy;
  };
  const Current current{strategy_};
  const int num_local = strategy_.num_local_replicas();
  strategy_.work_ = this;
  strategy_.variables_->take_gradients();  // drops those of a failed step
  strategy_.number_replicas(slot_.slot * num_local, slot_.num_slots * num_local,
                            seed_of_step(strategy_.seed_, slot_.step));
  // The replicas have their own threads. A second team for this thread would spin for work on their cores.
  const IntraOpThreadsGuard no_pool(1);
  auto results = parts_.run(slot_, batch_.get());
  gradients_ = strategy_.variables_->take_gradients();
  return results;
}

void ParameterServerStrategy::StepWork::finish(ClosureValues& results) {
  if (strategy_.is_synchronous_ && !parts_.only_reads) {
    strategy_.variables_->contribute(static_cast<uint64_t>(slot_.step), static_cast<uint32_t>(slot_.slot),
                                     gradients_);
  } else {
    push();
  }
  results.emplace_back(encode_report(report_));
}

std::shared_ptr<const ServedVariables::Values> ParameterServerStrategy::StepWork::begin_run() {
  if (!strategy_.is_synchronous_) {
    gradients_ = strategy_.variables_->take_gradients();
    push();
  }
  return std::exchange(values_, nullptr);
}

void ParameterServerStrategy::StepWork::push() {
  if (gradients_.empty()) return;
  const auto pushed = strategy_.variables_->push(
      {.closure = static_cast<uint64_t>(slot_.step), .number = num_pushes_++}, gradients_);
  gradients_.clear();
  auto& counts = report_.counts;
  counts.num_repeated += pushed.num_repeated > 0 ? 1 : 0;
  counts.num_outdated += pushed.num_outdated > 0 ? 1 : 0;
  const auto most = std::max_element(pushed.staleness.begin(), pushed.staleness.end());
  if (most != pushed.staleness.end()) ++counts.staleness[*most];
}

}  // namespace lockstep
