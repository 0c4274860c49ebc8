// Errors that one worker has outside of collectives reach the other workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kNumExamples = 16;
constexpr const char* kMissing = "/data/1/7.png: no such file";

/// Examples 0, 1, 2, ..., one of which cannot be read; by default all can.
class WithAMissingFile {
 public:
  explicit WithAMissingFile(std::optional<size_t> missing = std::nullopt) : missing_(missing) {}

  std::optional<size_t> size() const { return kNumExamples; }
  Example get_batch(c10::ArrayRef<size_t> indices) const {
    for (const size_t index : indices)
      if (index == missing_) throw DataError(kMissing);
    const auto count = static_cast<int64_t>(indices.size());
    return {torch::ones({count, 1}), torch::zeros({count}, torch::kLong)};
  }

 private:
  std::optional<size_t> missing_;
};

void sum_once(MultiWorkerMirroredStrategy& strategy) {
  strategy.run([](ReplicaContext& replica) { replica.all_reduce(ReduceOp::kSum, torch::ones({1})); });
}

/// Worker 1 throws its own error, and the others soon throw one that names worker 1 and the file.
void expect_all_know(const std::vector<std::exception_ptr>& errors, steady_clock::time_point begin) {
  EXPECT_LT(steady_clock::now() - begin, seconds(5));
  for (size_t worker = 0; worker < errors.size(); ++worker) {
    if (worker == 1) {
      EXPECT_TRUE(is_a<DataError>(errors[worker]));
      EXPECT_EQ(text_of(errors[worker]), kMissing);
    } else {
      EXPECT_TRUE(is_a<PeerLost>(errors[worker]));
      EXPECT_THAT(text_of(errors[worker]), AllOf(HasSubstr("worker 1 ("), HasSubstr(kMissing)));
    }
  }
}

struct InputErrorCase {
  size_t missing;  // the example that cannot be read
  int prefetch;
  int num_workers;
};

class MultiWorkerInputErrors : public testing::TestWithParam<InputErrorCase> {};

// Worker 1 of 2 reads the last 2 examples of each batch of 4.
INSTANTIATE_TEST_SUITE_P(Places, MultiWorkerInputErrors,
                         testing::Values(InputErrorCase{2, 0, 1}, InputErrorCase{2, 2, 1},
                                         InputErrorCase{11, 0, 1}, InputErrorCase{11, 2, 2}));

TEST_P(MultiWorkerInputErrors, TellAllWorkersWhichFileOneCouldNotRead) {
  const InputErrorCase input = GetParam();
  const auto begin = steady_clock::now();
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const bool is_second = strategy.cluster_resolver()->rank() == 1;
    auto batches = strategy.distribute_dataset(
        WithAMissingFile(is_second ? std::optional(input.missing) : std::nullopt),
        {.global_batch_size = 4, .prefetch = input.prefetch, .num_workers = input.num_workers});
    for ([[maybe_unused]] const auto& batch : batches) sum_once(strategy);
  });
  expect_all_know(errors, begin);
}

TEST(MultiWorkerInputError, OfAMapFunctionInALoadersThreadIsToldToAllWorkers) {
  const auto begin = steady_clock::now();
  const auto errors = run_strategies({1, 1, 1}, [](MultiWorkerMirroredStrategy& strategy) {
    const bool is_second = strategy.cluster_resolver()->rank() == 1;
    std::atomic<int> num_calls{0};
    auto batches =
        strategy
            .distribute_dataset(WithAMissingFile(), {.global_batch_size = 3, .prefetch = 2, .num_workers = 2})
            .map([&](Example batch) {
              if (is_second && ++num_calls == 4) throw DataError(kMissing);
              return batch;
            });
    for ([[maybe_unused]] const auto& batch : batches) sum_once(strategy);
  });
  expect_all_know(errors, begin);
}

// The other workers learn of the error when it arises, not when the strategy ends.
TEST(MultiWorkerInputError, IsToldThoughItsWorkerCatchesIt) {
  std::atomic<bool> has_other_ended{false};
  const auto begin = steady_clock::now();
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const bool is_second = strategy.cluster_resolver()->rank() == 1;
    auto batches = strategy.distribute_dataset(
        WithAMissingFile(is_second ? std::optional<size_t>(6) : std::nullopt), {.global_batch_size = 4});
    try {
      for ([[maybe_unused]] const auto& batch : batches) sum_once(strategy);
    } catch (const DataError&) {
      while (!has_other_ended && steady_clock::now() - begin < seconds(20))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      throw;
    } catch (const PeerLost&) {
      has_other_ended = true;
      throw;
    }
  });
  EXPECT_TRUE(has_other_ended);
  expect_all_know(errors, begin);
}

TEST(MultiWorkerInputError, OfAProgramIsToldByReportFailure) {
  const auto begin = steady_clock::now();
  const auto errors = run_strategies({1, 1}, [](MultiWorkerMirroredStrategy& strategy) {
    if (strategy.cluster_resolver()->rank() == 0) return sum_once(strategy);
    try {
      throw DataError(kMissing);
    } catch (const DataError&) {
      strategy.report_failure(std::current_exception());
      throw;
    }
  });
  expect_all_know(errors, begin);
}

/// Throws what the workers get if worker 1 reads another dataset than worker 0.
template <typename D>
std::vector<std::exception_ptr> errors_of_datasets(const D& first, const D& second) {
  return run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const bool is_second = strategy.cluster_resolver()->rank() == 1;
    strategy.distribute_dataset(is_second ? second : first, {.global_batch_size = 4});
  });
}

TensorDataset labelled(const torch::Tensor& labels) {
  return {torch::ones({labels.size(0), 1}), labels};
}

TEST(MultiWorkerDatasets, ThatDifferInTheirExamplesAreNamedByBothWorkers) {
  for (const auto& error : errors_of_datasets(labelled(torch::arange(16)), labelled(torch::arange(16) + 1))) {
    EXPECT_TRUE(is_a<ClusterError>(error));
    EXPECT_THAT(text_of(error),
                AllOf(HasSubstr("[dataset] expected the same on all workers"), HasSubstr("worker 0 ("),
                      HasSubstr("worker 1 ("), HasSubstr("(checksum ")));
  }
}

TEST(MultiWorkerDatasets, WithTheSameExamplesOrWithoutAnIdentityAreAccepted) {
  for (const auto& error : errors_of_datasets(labelled(torch::arange(16)), labelled(torch::arange(16))))
    EXPECT_EQ(error, nullptr);
  for (const auto& error : errors_of_datasets(WithAMissingFile(), WithAMissingFile(1)))
    EXPECT_EQ(error, nullptr);
}

TEST(MultiWorkerChecks, OfAProgramsOwnValuesNameTheFirstDifference) {
  const auto errors = run_strategies({1, 1}, [](MultiWorkerMirroredStrategy& strategy) {
    const bool is_second = strategy.cluster_resolver()->rank() == 1;
    strategy.check_same("plan", {"the same"});
    strategy.check_same("plan", {"the same", is_second ? "rounds: 2" : "rounds: 1"});
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<ClusterError>(error));
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("[plan] expected the same on all workers"),
                                      HasSubstr("has rounds: 1"), HasSubstr("has rounds: 2")));
  }
}

}  // namespace
}  // namespace lockstep
