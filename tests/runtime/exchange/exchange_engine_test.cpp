#include "lockstep/runtime/exchange/exchange_engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/runtime/exchange/exchange_message.h"
#include "lockstep/runtime/exchange/make_plan.h"
#include "lockstep/runtime/exchange/plan_costs.h"
#include "lockstep/tests/runtime/exchange/exchange_world.h"
#include "lockstep/tests/runtime/exchange/plan_memory.h"

namespace lockstep {
namespace {

const std::vector<std::string>& no_errors(int size) {
  static std::vector<std::string> none;
  none.assign(static_cast<size_t>(size), "");
  return none;
}

class Exchanges : public testing::TestWithParam<std::tuple<TestTransport, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  ExchangeWorld world() const { return {size(), {std::get<0>(GetParam()), 4096}}; }
};

// Fewer values than ranks, messages that fit into a link's buffers, and longer ones.
constexpr size_t kCounts[] = {0, 1, 5, 1000, 100'000};

TEST_P(Exchanges, OfAllReduceHaveTheBitsOfTheSumInTheFixedOrder) {
  auto ranks = world();
  uint64_t sequence = 0;
  for (const auto algorithm : algorithms_for(CollectiveKind::kAllReduce)) {
    const bool is_fixed = has_fixed_order(CollectiveKind::kAllReduce, algorithm);
    for (const size_t count : kCounts) {
      const auto expected = ordered_sum(size(), count);
      const auto errors = ranks.on_each([&](int rank, ExchangeEngine& engine) {
        const auto plan = make_plan(CollectiveKind::kAllReduce, algorithm, rank, size());
        const PlanMemory memory(plan, values_of(rank, count));
        engine.run(call_of(plan, memory, sequence), later());
        for (size_t i = 0; i < count; ++i) {
          const double difference = memory.values()[i] - expected[i];
          // A ring adds each block in another order: at most the rounding of the largest values.
          if (is_fixed ? difference != 0 : std::abs(difference) > 1e-8)
            throw std::runtime_error("value " + std::to_string(i) + " is wrong by " +
                                     std::to_string(difference));
        }
      });
      ASSERT_EQ(errors, no_errors(size())) << to_string(algorithm) << ", " << count << " values";
      ++sequence;
    }
  }
}

TEST_P(Exchanges, OfReduceScatterLeaveEachRankItsBlock) {
  auto ranks = world();
  uint64_t sequence = 0;
  for (const auto algorithm : algorithms_for(CollectiveKind::kReduceScatter)) {
    if (!has_fixed_order(CollectiveKind::kReduceScatter, algorithm)) continue;
    for (const size_t count : kCounts) {
      const auto sum = ordered_sum(size(), count);
      const auto errors = ranks.on_each([&](int rank, ExchangeEngine& engine) {
        const auto plan = make_plan(CollectiveKind::kReduceScatter, algorithm, rank, size());
        const PlanMemory memory(plan, values_of(rank, count));
        engine.run(call_of(plan, memory, sequence), later());
        const PlanMemory expected(plan, sum);
        if (memory.block(rank) != expected.block(rank)) throw std::runtime_error("wrong block");
      });
      ASSERT_EQ(errors, no_errors(size())) << to_string(algorithm) << ", " << count << " values";
      ++sequence;
    }
  }
}

// A broadcast, a gather and an all-gather of the values of which each rank has one block.
TEST_P(Exchanges, BringEachRankTheBlocksOfTheOthers) {
  auto ranks = world();
  uint64_t sequence = 0;
  for (const auto kind : {CollectiveKind::kAllGather, CollectiveKind::kGather, CollectiveKind::kBroadcast}) {
    for (const auto algorithm : algorithms_for(kind)) {
      for (const size_t count : kCounts) {
        const int root = static_cast<int>(count) % size();
        const auto all = values_of(99, count);
        const auto errors = ranks.on_each([&](int rank, ExchangeEngine& engine) {
          const auto plan = make_plan(kind, algorithm, rank, size(), root);
          const PlanMemory expected(plan, all);
          const PlanMemory memory(plan, std::vector<double>(count, -1));
          const auto begins_with = [&](int block) {
            return kind == CollectiveKind::kBroadcast ? rank == root : block == rank;
          };
          for (int block = 0; block < plan.num_blocks; ++block) {
            const auto from = expected.blocks()[static_cast<size_t>(block)];
            if (begins_with(block) && !from.empty())
              std::memcpy(memory.blocks()[static_cast<size_t>(block)].data(), from.data(), from.size());
          }
          engine.run(call_of(plan, memory, sequence), later());
          const bool has_all = kind != CollectiveKind::kGather || rank == root;
          if (has_all && memory.values() != all) throw std::runtime_error("wrong values");
        });
        ASSERT_EQ(errors, no_errors(size()))
            << to_string(kind) << " by " << to_string(algorithm) << ", " << count;
        ++sequence;
      }
    }
  }
}

TEST_P(Exchanges, OfAllToAllTransposeTheBlocks) {
  auto ranks = world();
  uint64_t sequence = 0;
  for (const auto algorithm : algorithms_for(CollectiveKind::kAllToAll)) {
    for (const size_t each : {0, 1, 300, 20'000}) {
      const auto errors = ranks.on_each([&](int rank, ExchangeEngine& engine) {
        const auto plan = make_plan(CollectiveKind::kAllToAll, algorithm, rank, size());
        std::vector<double> values(2 * each * static_cast<size_t>(size()), -1);
        for (int to = 0; to < size(); ++to)
          std::fill_n(values.begin() + static_cast<int64_t>(each) * to, each, 100 * rank + to);
        const PlanMemory memory(plan, values);
        engine.run(call_of(plan, memory, sequence), later());
        for (int from = 0; from < size(); ++from) {
          if (memory.block(size() + from) != std::vector<double>(each, 100 * from + rank))
            throw std::runtime_error("wrong block from rank " + std::to_string(from));
        }
      });
      ASSERT_EQ(errors, no_errors(size())) << to_string(algorithm) << ", " << each << " values each";
      ++sequence;
    }
  }
}

// The counts of plan_costs_test are those of messages that were sent.
TEST_P(Exchanges, SendTheMessagesOfTheirPlan) {
  auto ranks = world();
  const auto errors = ranks.on_each([&](int rank, ExchangeEngine& engine) {
    const auto plan = make_plan(CollectiveKind::kAllReduce, PlanAlgorithm::kHalving, rank, size());
    const PlanMemory memory(plan, values_of(rank, 1000));
    engine.run(call_of(plan, memory, 0), later());
    uint64_t num_messages = 0;
    for (const auto& round : plan.rounds) num_messages += round.sends.size();
    const auto payload =
        static_cast<uint64_t>(costs_of(plan, even_blocks(8000, plan.num_blocks, sizeof(double))).bytes_sent);
    const auto counted = engine.counters();
    if (counted.messages_sent != num_messages) throw std::runtime_error("another number of messages");
    // Each message has a header, and the first one to each rank has a text.
    const uint64_t most = payload + num_messages * (kMessageHeaderBytes + kMaxTextBytes);
    if (counted.bytes_sent < payload + num_messages * kMessageHeaderBytes || counted.bytes_sent > most)
      throw std::runtime_error("another number of bytes");
  });
  ASSERT_EQ(errors, no_errors(size()));
}

// Random pauses change which rank waits for which, and how messages are cut.
TEST_P(Exchanges, HaveTheSameBitsWhateverTheTiming) {
  constexpr size_t kCount = 3000;
  auto ranks = world();
  const auto expected = ordered_sum(size(), kCount);
  for (uint64_t sequence = 0; sequence < 40; ++sequence) {
    const auto algorithm = sequence % 2 == 0 ? PlanAlgorithm::kRecursiveDoubling : PlanAlgorithm::kHalving;
    const auto errors = ranks.on_each([&](int rank, ExchangeEngine& engine) {
      std::mt19937 random(static_cast<unsigned>(sequence) * 100 + static_cast<unsigned>(rank));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      const auto plan = make_plan(CollectiveKind::kAllReduce, algorithm, rank, size());
      const PlanMemory memory(plan, values_of(rank, kCount));
      engine.run(call_of(plan, memory, sequence), later());
      if (memory.values() != expected) throw std::runtime_error("wrong sum");
    });
    ASSERT_EQ(errors, no_errors(size())) << sequence;
  }
}

std::string name_of(const testing::TestParamInfo<std::tuple<TestTransport, int>>& tested) {
  const auto [transport, size] = tested.param;
  const std::string name = transport == TestTransport::kSockets        ? "Sockets"
                           : transport == TestTransport::kEncrypted    ? "Encrypted"
                           : transport == TestTransport::kSharedMemory ? "SharedMemory"
                                                                       : "Mixed";
  return name + "_" + std::to_string(size);
}

INSTANTIATE_TEST_SUITE_P(Over, Exchanges,
                         testing::Combine(testing::Values(TestTransport::kSockets, TestTransport::kEncrypted,
                                                          TestTransport::kSharedMemory,
                                                          TestTransport::kMixed),
                                          testing::Values(1, 2, 3, 4, 5, 8)),
                         name_of);

}  // namespace
}  // namespace lockstep
