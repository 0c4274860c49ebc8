#include "lockstep/apps/train_gpt/training/gpt_routing.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>
#include <string>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep::apps {
namespace {

/// Three layers of experts on two replicas.
class RoutedReplicas {
 public:
  void pass() {
    strategy_.run(
        [](ReplicaContext&, Gpt& gpt) {
          const auto tokens = torch::arange(12).view({2, 6});
          gpt->losses_with_routing(tokens, tokens);
        },
        model_);
  }
  void spoil(size_t replica, const std::string& parameter) {
    const torch::NoGradGuard no_grad;
    model_.local_values()[replica]->named_parameters()[parameter].view(-1)[0] =
        std::numeric_limits<double>::quiet_NaN();
  }
  void reset_statistics() {
    for (auto& gpt : model_.local_values()) gpt->routing_statistics(/*reset=*/true);
  }
  std::string first_router() const { return first_not_finite_router(model_); }

 private:
  MirroredStrategy strategy_{cpu_devices(2)};
  Mirrored<Gpt> model_ = strategy_.scope([](ReplicaContext&) {
    return Gpt(GptOptions{.vocabulary_size = 12,
                          .max_length = 6,
                          .num_layers = 3,
                          .num_heads = 2,
                          .width = 8,
                          .num_experts = 4});
  });
};

TEST(GptRoutingTest, NamesNoRouterWhileAllAreFinite) {
  RoutedReplicas replicas;
  replicas.pass();
  EXPECT_EQ(replicas.first_router(), "");
}

TEST(GptRoutingTest, NamesTheRouterThatWasNotFiniteFirst) {
  RoutedReplicas replicas;
  replicas.pass();
  replicas.spoil(1, "blocks.1.experts.router.weight");
  replicas.pass();
  EXPECT_EQ(replicas.first_router(), "blocks.1.experts");
  // By then, the other layers and replicas have NaN, too.
  replicas.spoil(0, "blocks.0.mlp_norm.weight");
  replicas.spoil(1, "blocks.0.mlp_norm.weight");
  replicas.pass();
  EXPECT_EQ(replicas.first_router(), "blocks.1.experts");
  replicas.reset_statistics();
  EXPECT_EQ(replicas.first_router(), "");
  replicas.pass();
  EXPECT_EQ(replicas.first_router(), "blocks.0.experts");
}

}  // namespace
}  // namespace lockstep::apps
