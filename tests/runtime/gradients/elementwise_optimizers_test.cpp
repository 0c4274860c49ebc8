#include "lockstep/runtime/gradients/elementwise_optimizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include "lockstep/runtime/replicas/elementwise_step.h"
#include "lockstep/tests/runtime/gradients/sharded_training.h"

namespace lockstep {
namespace {

namespace optim = torch::optim;
using testing::AllOf;
using testing::HasSubstr;

struct DerivedSgd : optim::SGD {
  using SGD::SGD;
};
struct DeclaredSgd : optim::SGD, ElementwiseStep {
  using SGD::SGD;
};
struct RevokedSgd : DeclaredSgd {
  using DeclaredSgd::DeclaredSgd;
  bool is_elementwise() const override { return false; }
};

TEST(ElementwiseOptimizers, AreLibTorchsOwnAndThoseThatSaySo) {
  const Parameters parameters{torch::ones({2}).requires_grad_()};
  EXPECT_TRUE(is_elementwise(optim::SGD(parameters, 0.1)));
  EXPECT_TRUE(is_elementwise(optim::Adagrad(parameters)));
  EXPECT_TRUE(is_elementwise(DeclaredSgd(parameters, 0.1)));
  EXPECT_FALSE(is_elementwise(DerivedSgd(parameters, 0.1)));
  EXPECT_FALSE(is_elementwise(RevokedSgd(parameters, 0.1)));
}

TEST(ElementwiseOptimizers, OthersAreRefusedByNameWithTheReason) {
  const auto make = [](const Parameters& own) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<optim::LBFGS>(own);
  };
  try {
    const ShardedTraining training({1, 2, 1}, odd_parameters, make, kShardedBuckets);
    FAIL() << "expected an error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("torch::optim::LBFGS"), HasSubstr("elementwise"),
                                    HasSubstr("ElementwiseStep")));
  }
}

}  // namespace
}  // namespace lockstep
