// Mistakes in the use of sharded units end with an error that names the unit, and everything can be used
// afterwards.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/sequential.h>

#include <stdexcept>
#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/tests/strategies/sharding/sharding_cases.h"

namespace lockstep {
namespace {

using torch::nn::Linear;

constexpr int kRanksOfErrors = 2;

std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

/// Sharded layers that can be used after the errors of a test.
class ShardedErrorsTest : public testing::Test {
 protected:
  ShardedErrorsTest() {
    models_ = ranks_.make([](UnitOptions options) {
      options.name = "layer";
      return Sharded<MlpBlock>(options);
    });
  }

  void expect_usable() {
    torch::manual_seed(5);
    MlpBlock plain;
    plain->forward(x_).square().sum().backward();
    ranks_.run([&](int rank) {
      auto& own = model(rank);
      own->zero_grad();
      EXPECT_EQ(gathered_units(*own).counts().units, 0);
      own->forward(x_).square().sum().div(kRanksOfErrors).backward();
    });
    expect_same(assembled(models_, true), parameters_of(plain, true));
  }
  Sharded<MlpBlock>& model(int rank) { return models_[static_cast<size_t>(rank)]; }
  /// The first error that is not a consequence of another one.
  template <typename Error>
  std::string cause_of(const std::function<void(int)>& function) {
    for (const auto& error : ranks_.errors_of(function)) {
      if (error && message_of<CollectiveAborted>(error) != "another replica failed")
        return message_of<Error>(error);
    }
    return "no error";
  }

  ShardedRanks ranks_{kRanksOfErrors};
  std::vector<Sharded<MlpBlock>> models_;
  torch::Tensor x_ = torch::randn({3, 5}, torch::kDouble);
};

TEST_F(ShardedErrorsTest, ParametersCannotBeUsedOutsideTheirUnit) {
  Linear block(4, 4);
  const auto weight = block->weight;
  const Sharded<Linear> unit(UnitOptions{.index = 0, .size = 2, .name = "head"}, block);
  expect_contains(error_of([&] {
                    block->forward(torch::randn({2, 4}));
                  }),
                  "of unit 'head' is cut over the ranks");
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { (weight + 1).sum(); }, [&] { weight.t().contiguous(); }, [&] { weight.detach().zero_(); }}) {
    const auto error = error_of(use);
    expect_contains(error, "[Sharded] parameter 'weight' of unit 'head' is cut over the ranks");
  }
}

TEST_F(ShardedErrorsTest, AUnitOfSeveralRanksNeedsARun) {
  expect_contains(error_of([&] { model(0)->forward(x_); }), "[Sharded] expected to train inside a run");
  Sharded<Linear> alone(UnitOptions{.index = 0, .size = 2, .name = "head"}, 4, 4);
  expect_contains(error_of([&] { alone(torch::randn({2, 4})); }), "unit 'head' to be part of a module");
  expect_usable();
}

TEST_F(ShardedErrorsTest, OptionsMustFit) {
  for (const auto& options : {UnitOptions{.index = 2, .size = 2}, UnitOptions{.index = -1, .size = 2},
                              UnitOptions{.index = 0, .size = 0}})
    EXPECT_THROW(Sharded<Linear>(options, 4, 4), InvalidArgument);
  Sharded<Linear> other(UnitOptions{.index = 0, .size = 3, .name = "head"}, 4, 4);
  expect_contains(error_of([&] { ranks_.bind(*other, 0); }), "to be part 0 of 2");
  EXPECT_THROW(ShardedModule(nullptr, {}), InvalidArgument);
}

TEST_F(ShardedErrorsTest, NamesAParameterThatCannotBeCut) {
  const auto refused = [](const std::function<void(torch::nn::Module&)>& fill) {
    const auto block = std::make_shared<torch::nn::Module>("block");
    fill(*block);
    return error_of([&] { ShardedModule(block, {.index = 0, .size = 2}); });
  };
  const auto alias = refused([](torch::nn::Module& block) {
    const auto first = block.register_parameter("first", torch::ones({4}));
    block.register_parameter("second", first.detach());
  });
  expect_contains(alias, "'second' of unit 'block' shares that of 'first'");
  expect_contains(refused([](torch::nn::Module& block) {
                    block.register_parameter("gaps", torch::ones({4, 4}).slice(1, 0, 2));
                  }),
                  "'gaps' of unit 'block' has gaps");
}

TEST_F(ShardedErrorsTest, AUnitThatOneRankLeavesOutIsNamed) {
  const auto error = cause_of<CollectiveMismatch>([&](int rank) {
    if (rank == 0) model(rank)->forward(x_);
  });
  expect_contains(error, "[Sharded] unit 'layer', gathering its parameters: ");
  expect_usable();
}

TEST_F(ShardedErrorsTest, ABackwardThatOneRankLeavesOutIsNamed) {
  const auto error = cause_of<CollectiveMismatch>([&](int rank) {
    const auto y = model(rank)->forward(x_);
    if (rank == 0) y.sum().backward();
  });
  expect_contains(error, "[Sharded] unit 'layer', gathering its parameters: ");
  expect_usable();
}

struct FailingImpl : MlpBlockImpl {
  torch::Tensor forward(const torch::Tensor& x, bool fails) {
    if (fails) throw std::runtime_error("no more");
    return MlpBlockImpl::forward(x);
  }
};
TORCH_MODULE(Failing);

TEST_F(ShardedErrorsTest, AForwardThatThrowsFreesTheUnitAndReleasesTheOthers) {
  auto models = ranks_.make([](const UnitOptions& options) { return Sharded<Failing>(options); });
  const auto step = [&](int failing_rank) {
    return [&, failing_rank](int rank) {
      auto& own = models[static_cast<size_t>(rank)];
      const auto y = own->forward(x_, rank == failing_rank);
      own->forward(y, false).sum().backward();
    };
  };
  EXPECT_EQ(cause_of<std::runtime_error>(step(1)), "no more");
  for (auto& own : models) EXPECT_EQ(gathered_units(*own).counts().units, 0);
  ranks_.run(step(-1));
  expect_usable();
}

TEST_F(ShardedErrorsTest, ParametersMustNotChangeBeforeBackward) {
  const auto error = cause_of<InvalidArgument>([&](int rank) {
    const auto y = model(rank)->forward(x_);
    {
      const torch::NoGradGuard no_grad;
      for (auto& shard : model(rank)->parameters()) shard.mul_(1);
    }
    y.sum().backward();
  });
  expect_contains(error, "unit 'layer' was changed in place between forward and backward");
  expect_usable();
}

struct ChangingImpl : MlpBlockImpl {
  torch::Tensor forward(const torch::Tensor& x) {
    {
      const torch::NoGradGuard no_grad;
      first->weight.clamp_(-1, 1);
    }
    return MlpBlockImpl::forward(x);
  }
};
TORCH_MODULE(Changing);

TEST_F(ShardedErrorsTest, ForwardMustNotChangeItsParameters) {
  auto models = ranks_.make([](const UnitOptions& options) { return Sharded<Changing>(options); });
  const auto error =
      cause_of<InvalidArgument>([&](int rank) { models[static_cast<size_t>(rank)]->forward(x_); });
  expect_contains(error, "changed its parameter 'first.weight' in place");
  expect_usable();
}

TEST_F(ShardedErrorsTest, GradientsCannotBeDifferentiatedAgain) {
  const auto error = cause_of<InvalidArgument>([&](int rank) {
    const auto x = x_.clone().requires_grad_();
    torch::autograd::grad({model(rank)->forward(x).sum()}, {x}, {}, /*retain_graph=*/true,
                          /*create_graph=*/true);
  });
  expect_contains(error, "create_graph");
  expect_usable();
}

TEST_F(ShardedErrorsTest, AGraphCannotBeUsedTwiceUnlessItIsRetained) {
  std::vector<torch::Tensor> results(kRanksOfErrors);
  const auto errors = ranks_.errors_of([&](int rank) {
    auto& y = results[static_cast<size_t>(rank)];
    y = model(rank)->forward(x_);
    y.sum().backward();
    try {
      y.sum().backward();
    } catch (const std::exception&) {
      EXPECT_EQ(gathered_units(*model(rank)).counts().units, 0);
      throw;
    }
  });
  expect_contains(message_of<std::exception>(errors[0]), "second time");
  expect_usable();
}

TEST_F(ShardedErrorsTest, GradientsOfInputsAloneLeaveNothingGathered) {
  ranks_.run([&](int rank) {
    const auto x = x_.clone().requires_grad_();
    const auto y = model(rank)->forward(x);
    torch::autograd::grad({y.sum()}, {x});
    EXPECT_EQ(gathered_units(*model(rank)).counts().units, 0);
    for (const auto& shard : model(rank)->parameters()) EXPECT_FALSE(shard.grad().defined());
  });
  expect_usable();
}

/// Keeps a tensor with a gradient that it does not return.
struct LeakingImpl : MlpBlockImpl {
  torch::Tensor forward(const torch::Tensor& x) {
    const auto hidden = torch::tanh(first(x));
    leak = hidden.matmul(second->weight.t()).square().sum();
    return x + second(hidden);
  }
  torch::Tensor leak;
};
TORCH_MODULE(Leaking);

TEST_F(ShardedErrorsTest, ATensorThatForwardDoesNotReturnHasNoBackward) {
  std::vector<Leaking> blocks(kRanksOfErrors, Leaking(nullptr));
  size_t made = 0;
  auto models = ranks_.make(
      [&](const UnitOptions& options) { return Sharded<Leaking>(options, blocks[made++] = Leaking()); });
  const auto error = cause_of<std::exception>([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    models[self]->forward(x_);
    blocks[self]->leak.backward();
  });
  EXPECT_NE(error, "no error");
  expect_usable();
}

TEST_F(ShardedErrorsTest, NamesOfUnitsAreThoseInTheModel) {
  torch::nn::Sequential model(Sharded<Linear>(UnitOptions{.index = 0, .size = 2}, 4, 4), torch::nn::Tanh(),
                              Sharded<Linear>(UnitOptions{.index = 0, .size = 2}, 4, 4));
  name_sharded_units(*model);
  const auto* unit = dynamic_cast<ShardedModule*>(model->ptr(2).get());
  ASSERT_NE(unit, nullptr);
  EXPECT_EQ(unit->unit_options().name, "2");
}

}  // namespace
}  // namespace lockstep
