#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/training/metrics/auc.h"
#include "lockstep/training/metrics/confusion_matrix.h"
#include "lockstep/training/metrics/metrics.h"
#include "lockstep/training/metrics/precision_recall.h"

namespace lockstep {
namespace {

template <typename M>
auto value_of(const M& metric) {
  return metric.value(merge_states(M::kMerge, {metric.state()}));
}

// Classes 0, 0, 1, 2, 2, 2; the second is predicted as 1, the fourth as 0 and the last as 1.
const std::vector<int64_t> kTrueClasses{0, 0, 1, 2, 2, 2};
const std::vector<int64_t> kPredictedClasses{0, 1, 1, 0, 2, 1};

torch::Tensor logits_of(const std::vector<int64_t>& classes) {
  return torch::one_hot(torch::tensor(classes), 3).to(torch::kFloat) * 5;
}

TEST(ConfusionMatrix, CountsWhichClassWasTakenForWhich) {
  ConfusionMatrix confusion(3);
  confusion.update(logits_of(kPredictedClasses), torch::tensor(kTrueClasses));
  EXPECT_TRUE(value_of(confusion).equal(torch::tensor({{1.0, 1.0, 0.0}, {0.0, 1.0, 0.0}, {1.0, 1.0, 1.0}})));
  confusion.update(logits_of({0}), torch::tensor({2}), torch::tensor({0.5}));
  EXPECT_EQ(value_of(confusion)[2][0].item<double>(), 1.5);
  confusion.update(logits_of({0, 1}), torch::tensor({-1, 3}));  // not classes
  EXPECT_EQ(value_of(confusion).sum().item<double>(), 6.5);
  confusion.reset();
  EXPECT_EQ(value_of(confusion).sum().item<double>(), 0);
}

TEST(ConfusionMatrix, RefusesOtherNumbersOfClasses) {
  EXPECT_THROW(ConfusionMatrix(1), InvalidArgument);
  EXPECT_THROW(ConfusionMatrix(4).update(logits_of({0}), torch::tensor({0})), InvalidArgument);
  EXPECT_THROW(ConfusionMatrix(3).update(logits_of({0}), torch::Tensor()), InvalidArgument);
}

TEST(TopKCategoricalAccuracy, CountsTargetsAmongTheLargest) {
  const auto logits = torch::tensor({{0.1, 0.5, 0.3, 0.2}, {0.9, 0.1, 0.3, 0.2}, {0.5, 0.5, 0.5, 0.5}});
  const auto share = [&](int64_t k, const std::vector<int64_t>& targets) {
    TopKCategoricalAccuracy accuracy(k);
    accuracy.update(logits, torch::tensor(targets));
    return accuracy.total();
  };
  EXPECT_EQ(share(1, {1, 0, 0}), 3);
  EXPECT_EQ(share(2, {2, 2, 1}), 3);
  EXPECT_EQ(share(2, {3, 3, 2}), 0);
  EXPECT_EQ(share(9, {0, 1, 3}), 3);
  EXPECT_THROW(TopKCategoricalAccuracy(0), InvalidArgument);
}

TEST(PrecisionAndRecall, FollowTheirFormulasOfEachClass) {
  const auto update = [](auto metric) {
    metric.update(logits_of(kPredictedClasses), torch::tensor(kTrueClasses));
    return value_of(metric);
  };
  EXPECT_DOUBLE_EQ(update(Precision({.num_classes = 3, .class_id = 0})), 1.0 / 2);
  EXPECT_DOUBLE_EQ(update(Precision({.num_classes = 3, .class_id = 1})), 1.0 / 3);
  EXPECT_DOUBLE_EQ(update(Precision({.num_classes = 3, .class_id = 2})), 1.0);
  EXPECT_DOUBLE_EQ(update(Precision({.num_classes = 3})), (1.0 / 2 + 1.0 / 3 + 1) / 3);
  EXPECT_DOUBLE_EQ(update(Recall({.num_classes = 3, .class_id = 0})), 1.0 / 2);
  EXPECT_DOUBLE_EQ(update(Recall({.num_classes = 3, .class_id = 1})), 1.0);
  EXPECT_DOUBLE_EQ(update(Recall({.num_classes = 3})), (1.0 / 2 + 1 + 1.0 / 3) / 3);
}

TEST(PrecisionAndRecall, LeaveClassesOutThatOccurNowhere) {
  Recall recall({.num_classes = 3});
  recall.update(logits_of({0, 1}), torch::tensor({0, 0}));  // class 0: 1 of 2, class 1: 0 of 0
  EXPECT_DOUBLE_EQ(value_of(recall), 0.25);
  EXPECT_EQ(value_of(Recall({.num_classes = 3})), 0);
}

TEST(PrecisionAndRecall, AnswerYesOrNoAboveAThreshold) {
  const auto scores = torch::tensor({0.9, 0.6, 0.5, 0.2, 0.8});
  const auto targets = torch::tensor({1, 0, 1, 1, 1});
  const auto weights = torch::tensor({1.0, 2.0, 1.0, 1.0, 3.0});
  Precision precision;
  Recall recall;
  precision.update(scores, targets, weights);
  recall.update(scores.unsqueeze(1), targets.unsqueeze(1), weights);
  EXPECT_DOUBLE_EQ(value_of(precision), 4.0 / 6);
  EXPECT_DOUBLE_EQ(value_of(recall), 4.0 / 6);
  Recall low({.threshold = 0.1});
  low.update(scores, targets);
  EXPECT_EQ(value_of(low), 1);
  EXPECT_THROW(precision.update(scores, torch::ones({4})), InvalidArgument);
  EXPECT_THROW(Precision({.num_classes = 0}), InvalidArgument);
  EXPECT_THROW(Precision({.num_classes = 2, .class_id = 2}), InvalidArgument);
}

/// The share of pairs in order, by the definition.
double auc_by_pairs(const torch::Tensor& scores, const torch::Tensor& targets, const torch::Tensor& weights) {
  double ordered = 0, pairs = 0;
  for (int64_t i = 0; i < scores.size(0); ++i) {
    for (int64_t j = 0; j < scores.size(0); ++j) {
      if (targets[i].item<int64_t>() == 0 || targets[j].item<int64_t>() != 0) continue;
      const double weight = weights[i].item<double>() * weights[j].item<double>();
      const double difference = scores[i].item<double>() - scores[j].item<double>();
      pairs += weight;
      ordered += weight * (difference > 0 ? 1 : difference == 0 ? 0.5 : 0);
    }
  }
  return ordered / pairs;
}

TEST(Auc, IsTheShareOfPairsInOrder) {
  torch::manual_seed(5);
  for (const int64_t levels : {3, 1000}) {  // many equal scores, then few
    const auto scores = torch::randint(levels, {60}).to(torch::kFloat) / 7;
    const auto targets = torch::randint(2, {60});
    const auto weights = torch::rand({60}, torch::kDouble);
    Auc plain, weighed;
    plain.update(scores.narrow(0, 0, 25), targets.narrow(0, 0, 25));
    plain.update(scores.narrow(0, 25, 35).unsqueeze(1), targets.narrow(0, 25, 35).to(torch::kBool));
    weighed.update(scores, targets, weights);
    EXPECT_NEAR(value_of(plain), auc_by_pairs(scores, targets, torch::ones({60}, torch::kDouble)), 1e-12);
    EXPECT_NEAR(value_of(weighed), auc_by_pairs(scores, targets, weights), 1e-12);
  }
}

TEST(Auc, IsUndefinedWithoutBothClasses) {
  Auc auc;
  EXPECT_TRUE(std::isnan(value_of(auc)));
  auc.update(torch::tensor({0.5, 0.6}), torch::tensor({1, 1}));
  EXPECT_TRUE(std::isnan(value_of(auc)));
  auc.update(torch::tensor({0.1}), torch::tensor({0}));
  EXPECT_EQ(value_of(auc), 1);
  auc.update(torch::tensor({std::nan("")}), torch::tensor({0}));
  EXPECT_TRUE(std::isnan(value_of(auc)));
}

/// Shards of 0 to 4 examples over three replicas.
TEST(ClassificationMetrics, AreExactOverReplicasWithShardsOfAnySize) {
  torch::manual_seed(6);
  MirroredStrategy strategy(cpu_devices(3), {.intra_op_threads = 1});
  const auto logits = torch::randn({5, 3}), scores = torch::rand({5});
  const auto classes = torch::randint(3, {5}), answers = torch::tensor({1, 0, 0, 1, 1});
  ConfusionMatrix confusion(3);
  Auc auc;
  Recall recall({.num_classes = 3});
  confusion.update(logits, classes);
  auc.update(scores, answers);
  recall.update(logits, classes);
  auto confusions = strategy.scope([](ReplicaContext&) { return ConfusionMatrix(3); });
  auto aucs = strategy.scope([](ReplicaContext&) { return Auc(); });
  auto recalls = strategy.scope([](ReplicaContext&) { return Recall({.num_classes = 3}); });
  strategy.run(
      [&](ReplicaContext& replica, ConfusionMatrix& c, Auc& a, Recall& r) {
        const int64_t begin = replica.replica_id() == 2 ? 4 : 0,
                      count = std::array{0, 4, 1}[replica.replica_id()];
        c.update(logits.narrow(0, begin, count), classes.narrow(0, begin, count));
        a.update(scores.narrow(0, begin, count), answers.narrow(0, begin, count));
        r.update(logits.narrow(0, begin, count), classes.narrow(0, begin, count));
      },
      confusions, aucs, recalls);
  EXPECT_TRUE(result(strategy, confusions).equal(value_of(confusion)));
  EXPECT_EQ(result(strategy, aucs), value_of(auc));
  EXPECT_EQ(result(strategy, recalls), value_of(recall));
  EXPECT_EQ(result(aucs), value_of(auc));
  reset(confusions);
  EXPECT_EQ(result(confusions).sum().item<double>(), 0);
}

}  // namespace
}  // namespace lockstep
