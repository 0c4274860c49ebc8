// Units that are gathered ahead of their use, and gradients that are summed while backward goes on.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <stdexcept>
#include <thread>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/tests/strategies/sharding/sharding_cases.h"
#include "lockstep/tests/support/sanitizer.h"

namespace lockstep {
namespace {

constexpr int kRanksOfOverlap = 2;
constexpr size_t kUnitsOfOverlap = 4;

/// An MlpBlock that calls `in_forward`, and, when the gradient of its result is known, `in_backward`.
struct WatchedBlockImpl : MlpBlockImpl {
  torch::Tensor forward(const torch::Tensor& x) {
    if (in_forward) in_forward();
    const auto y = MlpBlockImpl::forward(x);
    if (y.requires_grad() && in_backward) {
      y.register_hook([this](const torch::Tensor& gradient) {
        in_backward();
        return gradient;
      });
    }
    return y;
  }

  std::function<void()> in_forward;
  std::function<void()> in_backward;
};
TORCH_MODULE(WatchedBlock);

/// Blocks that are plain or units, and are used in any order.
template <typename Block>
struct StackImpl : torch::nn::Module {
  template <typename Make>
  explicit StackImpl(const Make& make) {
    for (size_t i = 0; i < kUnitsOfOverlap; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), make()));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = x;
    for (auto& block : blocks) y = block->forward(y);
    return y;
  }

  std::vector<Block> blocks;
};
template <typename Block>
using Stack = std::shared_ptr<StackImpl<Block>>;
using UnitStack = Stack<Sharded<WatchedBlock>>;

Stack<MlpBlock> plain_stack() {
  torch::manual_seed(5);
  return std::make_shared<StackImpl<MlpBlock>>([] { return MlpBlock(); });
}

/// A stack of units for each rank, with its blocks.
struct UnitStacks {
  explicit UnitStacks(ShardedRanks& ranks, const UnitOptions& given = {}) {
    models = ranks.make([&](UnitOptions options) {
      options.overlap = given.overlap;
      options.keep_until_backward = given.keep_until_backward;
      auto& own = blocks.emplace_back();
      return std::make_shared<StackImpl<Sharded<WatchedBlock>>>([&] {
        options.name = "block" + std::to_string(own.size());
        own.emplace_back();
        return Sharded<WatchedBlock>(options, own.back());
      });
    });
  }

  std::vector<std::vector<WatchedBlock>> blocks;
  std::vector<UnitStack> models;
};

/// A step of training all blocks in a run, without an optimizer.
void train_step(ShardedRanks& ranks, std::vector<UnitStack>& models, const torch::Tensor& batch) {
  ranks.run([&](int rank) {
    auto& model = models[static_cast<size_t>(rank)];
    const auto y = model->forward(batch.tensor_split(kRanksOfOverlap)[static_cast<size_t>(rank)]);
    y.square().sum().backward();
    EXPECT_EQ(gathered_units(*model).counts().units, 0);
  });
}

TEST(ShardedOverlapTest, TheNextUnitIsGatheredWhileOneComputes) {
  ShardedRanks ranks(kRanksOfOverlap);
  UnitStacks stacks(ranks);
  std::vector<int64_t> in_forward;
  std::vector<int64_t> in_backward;
  for (auto& block : stacks.blocks[0]) {
    block->in_forward = [&] { in_forward.push_back(gathered_units(*stacks.models[0]).counts().units); };
    block->in_backward = [&] { in_backward.push_back(gathered_units(*stacks.models[0]).counts().units); };
  }
  const auto batch = batch_of(6, 5);
  train_step(ranks, stacks.models, batch);
  EXPECT_EQ(in_forward, (std::vector<int64_t>{1, 1, 1, 1}));
  EXPECT_EQ(in_backward, (std::vector<int64_t>{1, 1, 1, 1}));
  for (int step = 0; step < 3; ++step) {
    in_forward.clear();
    in_backward.clear();
    auto& counter = gathered_units(*stacks.models[0]);
    counter.restart();
    train_step(ranks, stacks.models, batch);
    // The last unit stays for its backward.
    EXPECT_EQ(in_forward, (std::vector<int64_t>{2, 2, 2, 1}));
    EXPECT_EQ(in_backward, (std::vector<int64_t>{2, 2, 2, 1}));
    EXPECT_EQ(counter.counts().most_units, 2);
    EXPECT_EQ(counter.counts().gathers, 7);
    EXPECT_EQ(counter.counts().reduce_scatters, 4);
  }
}

TEST(ShardedOverlapTest, RecomputationsAreGatheredAheadToo) {
  ShardedRanks ranks(kRanksOfOverlap);
  UnitStacks stacks(ranks);
  const auto plain = plain_stack();
  const auto batch = batch_of(6, 5);
  const auto step = [&](auto& model, torch::Tensor x) {
    for (auto& block : model->blocks) x = recompute(block, x);
    x.square().sum().backward();
  };
  for (int i = 0; i < 3; ++i) {
    step(plain, batch);
    gathered_units(*stacks.models[0]).restart();
    ranks.run([&](int rank) {
      const auto self = static_cast<size_t>(rank);
      step(stacks.models[self], batch.tensor_split(kRanksOfOverlap)[self]);
    });
  }
  expect_same(assembled(stacks.models, true), parameters_of(plain, true));
  const auto& counts = gathered_units(*stacks.models[0]).counts();
  EXPECT_EQ(counts.gathers, 7);
  EXPECT_EQ(counts.most_units, 2);
}

TEST(ShardedOverlapTest, CanBeTurnedOff) {
  ShardedRanks ranks(kRanksOfOverlap);
  UnitStacks stacks(ranks, {.overlap = false});
  const auto batch = batch_of(6, 5);
  for (int step = 0; step < 3; ++step) train_step(ranks, stacks.models, batch);
  const auto& counts = gathered_units(*stacks.models[0]).counts();
  EXPECT_EQ(counts.most_units, 1);
  EXPECT_EQ(counts.gathers, 3 * 8);
}

TEST(ShardedOverlapTest, UnitsThatAreKeptAreGatheredAheadInForward) {
  ShardedRanks ranks(kRanksOfOverlap);
  UnitStacks stacks(ranks, {.keep_until_backward = true});
  const auto batch = batch_of(6, 5);
  train_step(ranks, stacks.models, batch);
  std::vector<int64_t> units;
  for (auto& block : stacks.blocks[0])
    block->in_forward = [&] { units.push_back(gathered_units(*stacks.models[0]).counts().units); };
  train_step(ranks, stacks.models, batch);
  EXPECT_EQ(units, (std::vector<int64_t>{2, 3, 4, 4}));
  EXPECT_EQ(gathered_units(*stacks.models[0]).counts().gathers, 2 * 4);
}

/// A flag that threads wait for.
class Flag {
 public:
  void set() { is_set_ = true; }
  bool wait() const {
    for (int i = 0; i < 20000 && !is_set_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return is_set_;
  }

 private:
  std::atomic<bool> is_set_{false};
};

TEST(ShardedOverlapTest, ARankRunsAUnitAheadOfAnotherRank) {
  ShardedRanks ranks(kRanksOfOverlap);
  UnitStacks stacks(ranks);
  const auto batch = batch_of(6, 5);
  train_step(ranks, stacks.models, batch);
  Flag ahead;
  stacks.blocks[0][1]->in_forward = [&] { ahead.set(); };
  stacks.blocks[1][0]->in_forward = [&] { EXPECT_TRUE(ahead.wait()); };
  train_step(ranks, stacks.models, batch);
}

TEST(ShardedOverlapTest, ARankDoesNotWaitForTheSumsBeforeTheNextUnit) {
  ShardedRanks ranks(kRanksOfOverlap);
  UnitStacks stacks(ranks);
  const auto batch = batch_of(6, 5);
  const auto plain = plain_stack();
  train_step(ranks, stacks.models, batch);
  plain->forward(batch).square().sum().backward();
  Flag ahead;
  // Rank 0 is in the backward of the last unit but one while rank 1 has not begun that of the last unit.
  ranks.run([&](int rank) {
    auto& model = stacks.models[static_cast<size_t>(rank)];
    auto y = batch.tensor_split(kRanksOfOverlap)[static_cast<size_t>(rank)];
    for (size_t i = 0; i < kUnitsOfOverlap; ++i) {
      y = model->blocks[i]->forward(y);
      if (rank == 0 && i + 2 == kUnitsOfOverlap)
        y.register_hook([&](const torch::Tensor& gradient) { return ahead.set(), gradient; });
    }
    if (rank == 1) {
      EXPECT_TRUE(ahead.wait());
    }
    y.square().sum().backward();
  });
  plain->forward(batch).square().sum().backward();
  expect_same(assembled(stacks.models, true), parameters_of(plain, true));
}

/// A step that uses some blocks, some of them several times, in any order.
struct DrawnStep {
  struct Use {
    size_t block;
    bool is_recomputed;
  };
  std::vector<Use> uses;
  bool is_evaluation = false;
  bool is_dropped = false;  // the results, without backward

  explicit DrawnStep(std::mt19937& random) {
    const int count = std::uniform_int_distribution(1, 6)(random);
    for (int i = 0; i < count; ++i)
      uses.push_back({std::uniform_int_distribution<size_t>(0, kUnitsOfOverlap - 1)(random),
                      std::bernoulli_distribution(0.2)(random)});
    is_evaluation = std::bernoulli_distribution(0.2)(random);
    is_dropped = std::bernoulli_distribution(0.1)(random);
  }

  template <typename Model>
  torch::Tensor run(Model& model, const torch::Tensor& x) const {
    const torch::AutoGradMode mode(!is_evaluation);
    auto y = x;
    for (const auto& use : uses) {
      auto& block = model->blocks[use.block];
      y = use.is_recomputed && !is_evaluation ? recompute(block, y) : block->forward(y);
    }
    if (!is_evaluation && !is_dropped) y.square().sum().backward();
    return y.detach();
  }
};

class ShardedOverlapOrders : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, ShardedOverlapOrders, testing::Range(0, 12));

TEST_P(ShardedOverlapOrders, AnyOrderComputesOneDevicesNumbers) {
  const auto seed = static_cast<unsigned>(GetParam());
  ShardedRanks ranks(kRanksOfOverlap);
  UnitStacks stacks(ranks, {.keep_until_backward = GetParam() % 4 == 3});
  const auto plain = plain_stack();
  std::mt19937 random(seed);
  // Some steps come again, so that what is expected is right, wrong or missing.
  std::vector<DrawnStep> kinds;
  for (int i = 0; i < 3; ++i) kinds.emplace_back(random);
  const auto batch = batch_of(6, 5);
  for (int step = 0; step < 12; ++step) {
    const auto kind = std::uniform_int_distribution<size_t>(0, 3)(random);
    const DrawnStep drawn = kind < kinds.size() ? kinds[kind] : DrawnStep(random);
    // Several passes in a run.
    const int passes = std::uniform_int_distribution(1, 2)(random);
    torch::Tensor expected;
    for (int pass = 0; pass < passes; ++pass) expected = drawn.run(plain, batch + pass);
    std::vector<torch::Tensor> results(kRanksOfOverlap);
    ranks.run([&](int rank) {
      const auto self = static_cast<size_t>(rank);
      const auto own = batch.tensor_split(kRanksOfOverlap)[self];
      for (int pass = 0; pass < passes; ++pass) results[self] = drawn.run(stacks.models[self], own + pass);
    });
    EXPECT_LE(largest_difference({torch::cat(results)}, {expected}), 1e-11);
    double most = 1;
    const auto all = parameters_of(plain, true);
    for (const auto& [name, gradient] : all) most = std::max(most, gradient.abs().max().item<double>());
    expect_same(assembled(stacks.models, true), all, kExact * most);
    for (const auto& model : stacks.models) EXPECT_EQ(gathered_units(*model).counts().units, 0);
  }
  const auto& counts = gathered_units(*stacks.models[0]).counts();
  if (GetParam() % 4 != 3) {
    EXPECT_LE(counts.most_units, 2);
  }
  EXPECT_EQ(counts.gathers, gathered_units(*stacks.models[1]).counts().gathers);
}

TEST(ShardedOverlapTest, TrainingHasTheSameBitsWithAndWithout) {
  const auto trained = [](bool overlap) {
    ShardedRanks ranks(kRanksOfOverlap);
    UnitStacks stacks(ranks, {.overlap = overlap});
    const auto batch = batch_of(6, 5);
    ranks.run([&](int rank) {
      const auto self = static_cast<size_t>(rank);
      auto& model = stacks.models[self];
      // The whole training in one run.
      for (int step = 0; step < compared_steps(10); ++step) {
        model->zero_grad();
        model->forward(batch.tensor_split(kRanksOfOverlap)[self] + 0.1 * step).square().sum().backward();
        const torch::NoGradGuard no_grad;
        for (auto& shard : model->parameters()) shard.sub_(shard.grad(), 1e-2);
      }
    });
    return assembled(stacks.models, false);
  };
  expect_same(trained(true), trained(false), 0);
}

TEST(ShardedOverlapTest, AParameterThatChangesAfterItWasGatheredAheadIsGatheredAgain) {
  ShardedRanks ranks(kRanksOfOverlap);
  UnitStacks stacks(ranks);
  const auto plain = plain_stack();
  const auto batch = batch_of(2, 5);
  const auto run = [&](auto& model, const torch::Tensor& x) {
    const torch::NoGradGuard no_grad;
    const auto y = model->blocks[0]->forward(x);
    for (auto& parameter : model->blocks[1]->parameters()) parameter.mul_(1.5);
    return model->blocks[1]->forward(y);
  };
  for (int step = 0; step < 3; ++step) {
    const auto expected = run(plain, batch);
    ranks.run([&](int rank) {
      EXPECT_LE(largest_difference({run(stacks.models[static_cast<size_t>(rank)], batch)}, {expected}),
                kExact);
    });
  }
  EXPECT_EQ(gathered_units(*stacks.models[0]).counts().gathers, 2 + 2 * 3);
}

TEST(ShardedOverlapTest, ParametersOfAUnitThatIsKeptCannotBeUsedOutsideOfIt) {
  ShardedRanks ranks(kRanksOfOverlap);
  UnitStacks stacks(ranks);
  const auto batch = batch_of(6, 5);
  train_step(ranks, stacks.models, batch);
  ranks.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    const auto y = stacks.models[self]->forward(batch);
    EXPECT_EQ(gathered_units(*stacks.models[self]).counts().units, 1);
    EXPECT_THROW(stacks.blocks[self].back()->first->weight.sum(), c10::Error);
    y.square().sum().backward();
  });
}

TEST(ShardedOverlapTest, AUnitThatIsGatheredInVainIsFreed) {
  ShardedRanks ranks(kRanksOfOverlap);
  UnitStacks stacks(ranks);
  const auto batch = batch_of(6, 5);
  train_step(ranks, stacks.models, batch);
  ranks.run([&](int rank) {
    auto& model = stacks.models[static_cast<size_t>(rank)];
    model->blocks[0]->forward(batch);
    EXPECT_EQ(gathered_units(*model).counts().units, 1);
    model->blocks[3]->forward(batch);
    EXPECT_EQ(gathered_units(*model).counts().units, 0);
  });
  ranks.run([&](int rank) { stacks.models[static_cast<size_t>(rank)]->blocks[0]->forward(batch); });
  for (const auto& model : stacks.models) EXPECT_EQ(gathered_units(*model).counts().units, 0);
}

TEST(ShardedOverlapTest, ARankThatFailsLeavesAllWithoutExpectations) {
  const auto batch = batch_of(6, 5);
  for (const bool in_backward : {false, true}) {
    for (size_t failing = 0; failing < kUnitsOfOverlap; ++failing) {
      ShardedRanks ranks(kRanksOfOverlap);
      UnitStacks stacks(ranks);
      const auto plain = plain_stack();
      // The ranks remember different beginnings of a step.
      auto& block = stacks.blocks[1][failing];
      auto& fails = in_backward ? block->in_backward : block->in_forward;
      for (int attempt = 0; attempt < 3; ++attempt) {
        if (attempt > 0) train_step(ranks, stacks.models, batch);
        fails = [] { throw std::runtime_error("no more"); };
        const auto errors = ranks.errors_of([&](int rank) {
          stacks.models[static_cast<size_t>(rank)]->forward(batch).square().sum().backward();
        });
        EXPECT_EQ(message_of<std::runtime_error>(errors[1]), "no more");
        EXPECT_NE(errors[0], nullptr);
        fails = nullptr;
        for (const auto& model : stacks.models) EXPECT_EQ(gathered_units(*model).counts().units, 0);
      }
      for (auto& model : stacks.models) model->zero_grad();
      train_step(ranks, stacks.models, batch);
      plain->forward(batch).square().sum().backward();
      expect_same(assembled(stacks.models, true), parameters_of(plain, true));
    }
  }
}

TEST(ShardedOverlapTest, UnitsOfOneSizeInDifferentOrdersAreAMismatchThatNamesThem) {
  const auto batch = batch_of(6, 5);
  for (const int steps_before : {0, 2}) {
    ShardedRanks ranks(kRanksOfOverlap);
    UnitStacks stacks(ranks);
    for (int step = 0; step < steps_before; ++step) train_step(ranks, stacks.models, batch);
    const auto errors = ranks.errors_of([&](int rank) {
      auto& blocks = stacks.models[static_cast<size_t>(rank)]->blocks;
      const auto y = blocks[0]->forward(batch);
      blocks[rank == 0 ? 1 : 2]->forward(y);
      blocks[rank == 0 ? 2 : 1]->forward(y);
    });
    std::string text;
    for (const auto& error : errors) text += message_of<std::exception>(error) + "\n";
    EXPECT_NE(text.find("of unit 'block1'"), std::string::npos) << text;
    // Once the order is known, rank 0 gathers block 2 ahead when rank 1 needs it.
    const auto* other = steps_before == 0 ? "of unit 'block2'" : "of unit 'block3'";
    EXPECT_NE(text.find(other), std::string::npos) << text;
    for (const auto& model : stacks.models) EXPECT_EQ(gathered_units(*model).counts().units, 0);
    train_step(ranks, stacks.models, batch);
  }
}

TEST(ShardedOverlapTest, AUnitThatOneRankLeavesOutIsNamedOnceTheOrderIsKnown) {
  ShardedRanks ranks(kRanksOfOverlap);
  UnitStacks stacks(ranks);
  const auto batch = batch_of(6, 5);
  for (int step = 0; step < 2; ++step) train_step(ranks, stacks.models, batch);
  const auto errors = ranks.errors_of([&](int rank) {
    auto& model = stacks.models[static_cast<size_t>(rank)];
    auto y = model->blocks[0]->forward(batch);
    if (rank == 0) y = model->blocks[1]->forward(y);
    if (rank == 0) y = model->blocks[2]->forward(y);
  });
  const auto error = message_of<CollectiveMismatch>(errors[0]);
  EXPECT_NE(error.find("[Sharded] unit 'block2', gathering its parameters: "), std::string::npos) << error;
  for (const auto& model : stacks.models) EXPECT_EQ(gathered_units(*model).counts().units, 0);
  train_step(ranks, stacks.models, batch);
}

}  // namespace
}  // namespace lockstep
