#include "lockstep/runtime/workers/exchange_backend.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/exchange/make_plan.h"
#include "lockstep/tests/support/replica_group.h"
#include "lockstep/tests/support/worker_threads.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Runs a call on each worker's own channel over exchanges, and rethrows the first error.
void over_exchanges(
    int size, const std::function<void(int rank, WorkerChannel& channel)>& function,
    const std::function<void(JoinOptions&)>& change = [](JoinOptions&) {}) {
  const auto errors = run_workers(
      std::vector<int>(static_cast<size_t>(size), 1),
      [&](WorkerGroup& group) { function(group.layout()->worker(), *group.open_channel("test")); },
      [&](JoinOptions& options) {
        options.transport = WorkerTransport::kExchange;
        change(options);
      });
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

at::Tensor values_of(int rank, int64_t count, at::ScalarType dtype) {
  const at::Tensor numbers = at::arange(count, at::kDouble).mul(0.37 * (rank + 1)).sin().mul(50);
  return numbers.to(dtype);
}

at::Tensor reduced(WorkerChannel& channel, at::Tensor tensor, c10d::ReduceOp::RedOpType op) {
  channel.exchange("reduce", [&](c10d::Backend& backend) {
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    std::vector<at::Tensor> one{tensor};
    return WorkerChannel::Works{backend.allreduce(one, options)};
  });
  return tensor;
}

/// ATen's result of the reduction, in the order of sum_order().
at::Tensor expected_of(int size, int64_t count, at::ScalarType dtype, c10d::ReduceOp::RedOpType op) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < size; ++rank) parts.push_back(values_of(rank, count, dtype));
  for (const auto& step : sum_order(size)) {
    at::Tensor& into = parts[static_cast<size_t>(step.into)];
    const at::Tensor& from = parts[static_cast<size_t>(step.from)];
    into = op == c10d::ReduceOp::SUM       ? into.add(from)
           : op == c10d::ReduceOp::PRODUCT ? into.mul(from)
           : op == c10d::ReduceOp::MIN     ? into.minimum(from)
                                           : into.maximum(from);
  }
  return parts[0];
}

TEST(ExchangeBackend, HasTheBitsOfATenForAllDtypesAndReductions) {
  for (const int size : {2, 3, 4}) {
    over_exchanges(size, [&](int rank, WorkerChannel& channel) {
      for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong}) {
        for (const auto op :
             {c10d::ReduceOp::SUM, c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN, c10d::ReduceOp::MAX}) {
          for (const int64_t count : {0, 1, 7, 30'000}) {
            const auto result = reduced(channel, values_of(rank, count, dtype), op);
            ASSERT_TRUE(result.equal(expected_of(size, count, dtype, op)))
                << dtype << ", reduction " << static_cast<int>(op) << ", " << count << " values";
          }
        }
      }
    });
  }
}

// The ring's order depends on the size of the message, so its sums are only close.
TEST(ExchangeBackend, HasTheSameBitsByEveryAlgorithmButTheRing) {
  for (const int size : {2, 3, 4}) {
    for (const auto algorithm : algorithms_for(CollectiveKind::kAllReduce)) {
      over_exchanges(
          size,
          [&](int rank, WorkerChannel& channel) {
            for (const int64_t count : {0, 1, 7, 30'000}) {
              const auto result = reduced(channel, values_of(rank, count, at::kFloat), c10d::ReduceOp::SUM);
              const auto expected = expected_of(size, count, at::kFloat, c10d::ReduceOp::SUM);
              const bool is_right = has_fixed_order(CollectiveKind::kAllReduce, algorithm)
                                        ? result.equal(expected)
                                        : result.allclose(expected, 1e-5, 1e-4);
              EXPECT_TRUE(is_right) << to_string(algorithm) << " of " << count << " values over " << size;
            }
          },
          [algorithm](JoinOptions& options) { options.all_reduce_algorithm = algorithm; });
    }
  }
}

TEST(ExchangeBackend, KnowsWhetherAllWorkersAreOnOneMachine) {
  for (const bool uses_shared_memory : {false, true}) {
    const auto errors = run_workers(
        {1, 1},
        [&](WorkerGroup& group) {
          const auto& policy = group.exchange_policy();
          EXPECT_EQ(policy.transport, uses_shared_memory ? "shared memory" : "TCP");
          EXPECT_EQ(policy.costs.seconds_per_message,
                    (uses_shared_memory ? kSharedMemoryCosts : kNetworkCosts).seconds_per_message);
        },
        [&](JoinOptions& options) {
          options.transport = WorkerTransport::kExchange;
          options.uses_shared_memory = uses_shared_memory;
        });
    for (const auto& error : errors) EXPECT_EQ(message_of<std::exception>(error), "no error");
  }
}

TEST(ExchangeBackend, KeepsNaNs) {
  over_exchanges(2, [](int rank, WorkerChannel& channel) {
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    for (const auto op : {c10d::ReduceOp::MIN, c10d::ReduceOp::MAX}) {
      for (const int with_nan : {0, 1}) {
        const auto result = reduced(channel, at::full({3}, rank == with_nan ? kNaN : 1.0, at::kDouble), op);
        EXPECT_TRUE(result.isnan().all().item<bool>());
      }
    }
  });
}

// Each rank of a pair sees the two values in another order.
TEST(ExchangeBackend, HasTheSameBitsOfZerosOnAllRanks) {
  over_exchanges(2, [](int rank, WorkerChannel& channel) {
    for (const int with_minus : {0, 1}) {
      const double zero = rank == with_minus ? -0.0 : 0.0;
      const auto least = reduced(channel, at::full({1}, zero, at::kDouble), c10d::ReduceOp::MIN);
      const auto most = reduced(channel, at::full({1}, zero, at::kDouble), c10d::ReduceOp::MAX);
      EXPECT_TRUE(std::signbit(least.item<double>()));
      EXPECT_FALSE(std::signbit(most.item<double>()));
    }
  });
}

TEST(ExchangeBackend, BroadcastsFromEachRankAndGathers) {
  over_exchanges(3, [](int rank, WorkerChannel& channel) {
    for (const int64_t count : {1, 100'000}) {
      for (int root = 0; root < 3; ++root) {
        at::Tensor tensor = values_of(rank, count, at::kFloat);
        channel.exchange("broadcast", [&](c10d::Backend& backend) {
          c10d::BroadcastOptions options;
          options.rootRank = root;
          std::vector<at::Tensor> one{tensor};
          return WorkerChannel::Works{backend.broadcast(one, options)};
        });
        EXPECT_TRUE(tensor.equal(values_of(root, count, at::kFloat)));
      }
      at::Tensor all;
      channel.exchange("gather", [&](c10d::Backend& backend) {
        all = gather_rows_of_ranks(backend, values_of(rank, count, at::kFloat));
        return WorkerChannel::Works{};
      });
      for (int other = 0; other < 3; ++other)
        EXPECT_TRUE(all[other].equal(values_of(other, count, at::kFloat)));
    }
  });
}

// Several exchanges in one call are compared one by one, and one without any, too.
TEST(ExchangeBackend, ComparesCallsWithoutCollectives) {
  const auto errors = run_workers(
      {1, 1},
      [](WorkerGroup& group) {
        const auto channel = group.open_channel("test");
        channel->exchange("same", nullptr);
        channel->exchange(group.layout()->worker() == 0 ? "one call" : "another", nullptr);
      },
      [](JoinOptions& options) { options.transport = WorkerTransport::kExchange; });
  bool is_told = false;
  for (const auto& error : errors) {
    const auto message = message_of<std::exception>(error);
    EXPECT_NE(message, "no error");
    is_told = is_told || (testing::Value(message, AllOf(HasSubstr("[test] collective #1: worker "),
                                                        HasSubstr("one call"), HasSubstr("another"))));
  }
  EXPECT_TRUE(is_told);
}

TEST(ExchangeBackend, RefusesWhatItCannotReduce) {
  over_exchanges(2, [](int, WorkerChannel& channel) {
    ExchangeBackend backend({.op = "test", .engine = {.rank = 0, .size = 2}});
    const auto message = [&](at::Tensor tensor, c10d::ReduceOp::RedOpType op) {
      c10d::AllreduceOptions options;
      options.reduceOp = op;
      std::vector<at::Tensor> one{std::move(tensor)};
      try {
        backend.allreduce(one, options);
      } catch (const InvalidArgument& error) {
        return std::string(error.what());
      }
      return std::string("no error");
    };
    EXPECT_THAT(message(at::zeros({2}, at::kBool), c10d::ReduceOp::SUM),
                HasSubstr("expected float16, bfloat16, float32, float64, int32 or int64, but got Bool"));
    EXPECT_THAT(message(at::zeros({2}), c10d::ReduceOp::BXOR), HasSubstr("expected a sum"));
    channel.exchange("end", nullptr);
  });
}

}  // namespace
}  // namespace lockstep
